"""Links that leave docs/ lead to the file in the repository."""

import re


def on_page_markdown(markdown, page, config, files):
    up = page.file.src_uri.count("/") + 1
    outside = re.compile(r"\]\((?:\.\./){%d}([^)]+)\)" % up)
    return outside.sub(rf"]({config.repo_url}/blob/main/\1)", markdown)
