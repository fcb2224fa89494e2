//! Wraps comments of more than 100 columns: rustfmt does that on nightly only.
//!
//! Prose alone: a line that is indented, or begins a list, a table, a heading or a fence, stays as
//! it is, for `tidy` to name and a person to change.

use std::fs;

use anyhow::Result;

use crate::tidy::COLUMNS_MAX;
use crate::workspace::Workspace;

/// Wraps the comments of every Rust file.
pub(super) fn all(workspace: &Workspace) -> Result<()> {
    for path in workspace
        .files()?
        .iter()
        .filter(|path| path.ends_with(".rs"))
    {
        let path = workspace.root.join(path);
        let old = fs::read_to_string(&path)?;
        let new = wrapped(&old);
        if new != old {
            fs::write(path, new)?;
        }
    }
    Ok(())
}

fn wrapped(text: &str) -> String {
    let mut new = String::new();
    let mut is_fenced = false;
    let mut lines = text.lines().map(str::to_owned).peekable();
    let mut carried: Option<String> = None;
    while let Some(line) = carried.take().or_else(|| lines.next()) {
        let comment = comment(&line);
        is_fenced = comment.is_some_and(|(_, words)| is_fenced != words.starts_with("```"));
        if !is_fenced
            && let Some((lead, words)) = comment
            && let Some((kept, rest)) = broken(lead, words)
        {
            new += &format!("{lead}{kept}\n");
            // What is left over begins the next line, if that goes on with the paragraph.
            let next = lines.next_if(|next| continues(lead, next));
            let next = next.as_deref().and_then(self::comment);
            let more = next.map_or(String::new(), |(_, words)| format!(" {words}"));
            carried = Some(format!("{lead}{rest}{more}"));
        } else {
            new += &line;
            new.push('\n');
        }
    }
    new
}

/// A comment's indentation and slashes, and its words.
fn comment(line: &str) -> Option<(&str, &str)> {
    let slashes = line.trim_start();
    let mark = ["//! ", "/// ", "// "]
        .into_iter()
        .find(|mark| slashes.starts_with(mark))?;
    Some(line.split_at(line.len() - slashes.len() + mark.len()))
}

/// Prose that is too long, in two.
fn broken<'a>(lead: &str, words: &'a str) -> Option<(&'a str, &'a str)> {
    let room = COLUMNS_MAX.checked_sub(lead.chars().count())?;
    let (end, _) = words.char_indices().nth(room)?;
    let (kept, rest) = words.split_at(words[..=end].rfind(' ')?);
    let rest = rest.trim_start();
    (is_prose(words) && is_prose(rest)).then_some((kept, rest))
}

fn continues(lead: &str, next: &str) -> bool {
    comment(next).is_some_and(|(other, words)| other == lead && is_prose(words))
}

fn is_prose(words: &str) -> bool {
    let digits = words.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let is_numbered = digits.len() < words.len() && digits.starts_with('.');
    let begins_otherwise = words.starts_with([' ', '-', '*', '+', '|', '#', '>', '`']);
    !is_numbered && !begins_otherwise && !words.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    // A long line is broken and the paragraph goes on; code, lists, tables and addresses stay.
    #[test]
    fn only_prose_is_wrapped() {
        let word = "word ".repeat(25);
        let long = format!("    /// {word}end\n    /// of it\n    fn f() {{}}\n");
        let new = wrapped(&long);
        assert!(new.lines().all(|line| line.len() <= COLUMNS_MAX), "{new}");
        assert_eq!(new.lines().count(), 3);
        assert!(new.contains(" end of it\n    fn f() {}\n"), "{new}");
        let alone = wrapped(&format!("// {word}\nlet x = 1;\n"));
        assert_eq!(alone.lines().count(), 3, "{alone}");
        for same in [
            format!("/// - {word}\n"),
            format!("/// | {word}\n"),
            format!("/// 1. {word}\n"),
            format!("///   {word}\n"),
            format!("/// ```text\n/// {word}\n/// ```\n"),
            format!("// see https://example.org {word}\n"),
            format!("let s = \"{word}\"; // {word}\n"),
        ] {
            assert_eq!(wrapped(&same), same);
        }
    }
}
