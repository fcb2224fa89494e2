//! Runs the examples of README.md against a fresh server, so that they cannot rot.
//!
//! Fenced blocks are marked behind their language: `sh server` starts the server for the rest of
//! the page; `sh example` and `python example` are run and must succeed; a block `text output`
//! right after one is what it must print. The port 11211 and the path `target/release/curtail` are
//! replaced by those of the test, and nothing else.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::check_result::{Outcome, Tally};
use crate::conformance;
use crate::process::Log;
use crate::required_packages::{self, Tool};
use crate::server::{self, Server};
use crate::workspace::Workspace;

/// A fenced block: the words behind its fence, and its text.
#[derive(Debug, Eq, PartialEq)]
struct Block {
    mark: String,
    text: String,
    /// Of the opening fence, from one.
    line: usize,
}

pub(crate) fn check(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    required_packages::ensure(log, &[Tool::of("nc", "netcat-openbsd")])?;
    let binary = server::build(workspace, log)?.display().to_string();
    let blocks = blocks(&fs::read_to_string(workspace.root.join("README.md"))?);
    let start = blocks.iter().find(|block| block.mark == "sh server");
    let start = start.context("README.md has no block `sh server`")?;
    let words: Vec<String> = start.text.split_whitespace().map(str::to_string).collect();
    let Some(("target/release/curtail", options)) = words
        .split_first()
        .map(|(program, rest)| (program.as_str(), rest))
    else {
        bail!(
            "README.md:{}: the server is started as target/release/curtail",
            start.line
        );
    };
    let mut command = vec![binary.clone()];
    command.extend(options.iter().cloned());
    let server = Server::start(&command, &[])?;
    let mut tally = Tally::default();
    for (number, block) in blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| block.is_example())
    {
        let expected = blocks
            .get(number + 1)
            .filter(|next| next.mark == "text output");
        let text = block.text.replace("11211", &server.port.to_string());
        let text = text.replace("target/release/curtail", &binary);
        let printed = run(workspace, log, block, &text)?;
        let wrong = expected.is_some_and(|expected| tidied(&expected.text) != tidied(&printed));
        if wrong {
            log.line(&format!("README.md:{} printed:\n{printed}", block.line))?;
            tally += Tally::ONE_FAILED;
        } else {
            tally += Tally::ONE_PASSED;
        }
    }
    if tally.total() == 0 {
        bail!("README.md has no example");
    }
    Ok(Outcome::counted(tally, None))
}

fn run(workspace: &Workspace, log: &Log, block: &Block, text: &str) -> Result<String> {
    let mut command = match block.mark.as_str() {
        "python example" => {
            let mut command = Command::new(conformance::python(workspace, log)?);
            command.args(["-c", text]);
            command
        }
        _ => {
            let mut command = Command::new("sh");
            command.args(["-euc", text]);
            command
        }
    };
    let output = command.current_dir(&workspace.root).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "README.md:{}: the example ended with {}: {said}",
            block.line,
            output.status
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(mark)) => {
                let mark = mark.trim().to_string();
                open = Some(Block {
                    mark,
                    text: String::new(),
                    line: number + 1,
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// Without carriage returns, and without the space around.
fn tidied(text: &str) -> String {
    text.replace('\r', "").trim().to_string()
}

impl Block {
    fn is_example(&self) -> bool {
        self.mark == "sh example" || self.mark == "python example"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_marks() {
        let page = "# A\n```sh server\ncurtail serve\n```\ntext\n```sh example\necho 1\n```\n\
                    ```text output\n1\n```\n```\nplain\n```\n";
        let found = blocks(page);
        let marks: Vec<&str> = found.iter().map(|block| block.mark.as_str()).collect();
        assert_eq!(marks, ["sh server", "sh example", "text output", ""]);
        assert_eq!(found[1].text, "echo 1\n");
        assert_eq!(found[1].line, 6);
        assert!(found[1].is_example() && !found[2].is_example());
    }
}
