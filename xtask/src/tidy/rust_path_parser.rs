//! The paths that a Rust file names, read from its text: `use` trees spread out, and paths in code.
//!
//! A name that stands alone is no path: the `use` that brought it in was met already.

/// A path and the line (from one) on which it ends.
pub(super) type Named = (usize, Vec<String>);

/// Every path of two segments and more in `lines`, which hold no comments. Paths of this crate
/// begin with `crate`; `module` is where the file stands in it (`["worker", "context"]`).
pub(super) fn named<'a>(
    lines: impl Iterator<Item = (usize, &'a str)>,
    module: &[String],
) -> Vec<Named> {
    let tokens = tokens(lines);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let continues = at > 0 && tokens[at - 1].1 == "::";
        let starts = is_name(&tokens[at].1) && !continues;
        let joined = tokens.get(at + 1).is_some_and(|token| token.1 == "::");
        match starts && joined {
            true => at = tree(&tokens, at, &mut Vec::new(), &mut found),
            false => at += 1,
        }
    }
    for (_, path) in &mut found {
        absolute(path, module);
    }
    found.retain(|(_, path)| path.len() > 1);
    found
}

/// Reads one path or use tree; answers with where the next begins.
fn tree(
    tokens: &[(usize, String)],
    mut at: usize,
    path: &mut Vec<String>,
    found: &mut Vec<Named>,
) -> usize {
    let depth = path.len();
    while let Some((line, token)) = tokens.get(at) {
        if is_name(token) {
            path.push(token.clone());
            at += 1;
            if tokens.get(at).is_some_and(|token| token.1 == "::") {
                at += 1;
                continue;
            }
            found.push((*line, path.clone()));
        } else if token == "{" && path.len() > depth {
            at += 1;
            while let Some((_, token)) = tokens.get(at) {
                match token.as_str() {
                    "}" => break,
                    "as" => at += 2,
                    token if is_name(token) => at = tree(tokens, at, path, found),
                    _ => at += 1,
                }
            }
            at += 1;
        } else {
            // A glob, or the generics of a path in code.
            found.push((*line, path.clone()));
        }
        break;
    }
    path.truncate(depth);
    at.max(1)
}

/// Has `super` and `self` at the path's beginning begin with `crate`.
fn absolute(path: &mut Vec<String>, module: &[String]) {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let here = path.first().is_some_and(|part| part == "self");
    if ups == 0 && !here {
        return;
    }
    let kept = module.len().saturating_sub(ups);
    let rest = path.split_off(ups.max(usize::from(here)));
    *path = ["crate".to_string()].into();
    path.extend(module[..kept].iter().cloned());
    path.extend(rest);
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single characters, each with its line; what stands in quotes is left out.
fn tokens<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut tokens = Vec::new();
    for (number, line) in lines {
        let text = super::source::unquoted(line);
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                ':' if rest.starts_with("::") => 2,
                c if c.is_alphanumeric() || c == '_' => rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(rest.len()),
                c => c.len_utf8(),
            };
            tokens.push((number + 1, rest[..length].to_string()));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let module = ["worker".to_string(), "context".to_string()];
        let found = named(text.lines().enumerate(), &module);
        found.into_iter().map(|(_, path)| path.join("::")).collect()
    }

    #[test]
    fn use_trees_are_spread_out() {
        let text = "use crate::{config::Config, node::{self, links::Links}, sync::*};\n\
                    use super::mailbox;\npub(crate) use self::inner::One as Two;\n";
        let expected = [
            "crate::config::Config",
            "crate::node::self",
            "crate::node::links::Links",
            "crate::sync",
            "crate::worker::mailbox",
            "crate::worker::context::inner::One",
        ];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn paths_in_code_are_met_and_strings_are_not() {
        let text = "fn f(self) -> crate::request::Batch<u8> {\n\
                    let a = \"crate::memcached::B\"; g::<crate::log::C>(self.b)\n}\n";
        assert_eq!(paths(text), ["crate::request::Batch", "crate::log::C"]);
    }
}
