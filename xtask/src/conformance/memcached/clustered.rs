//! The same suite against a node of a cluster: the wrapper starts two more nodes beside each server
//! that the suite asks for, so two thirds of the keys have their home elsewhere.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// What stands in memcached's place, given the words that start a server. Files of the clusters go
/// to `folder`, emptied first.
pub(super) fn wrapper(words: &str, folder: &Path) -> Result<String> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let folder = folder.display().to_string();
    Ok(WRAPPER.replace("SERVER", words).replace("FOLDER", &folder))
}

/// Files run side by side: each server is three.
pub(super) const JOBS: &str = "2";

/// The suite waits two seconds for a server to take connections, which a node does when it is in
/// service. Nodes 1 and 2 get what the suite asks for, but for where to listen. They end with the
/// process that is node 0, which ends with the one that started it; nobody wants its keys then. It
/// prints nothing: `prove` waits until nobody holds its pipe.
const WRAPPER: &str = r#"#!/bin/sh
umask 077
others=
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
    -h) exec SERVER -h ;;
    -U) shift; count=$((count - 1)) ;;
    -o)
        if [ "$1" != relaxed_privileges ]; then
            set -- "$@" -o "$1"
            others="$others -o $1"
        fi
        shift
        count=$((count - 1))
        ;;
    -p | -s | -l | -a | -P)
        set -- "$@" "$argument" "$1"
        shift
        count=$((count - 1))
        ;;
    *)
        set -- "$@" "$argument"
        others="$others $argument"
        ;;
    esac
done
folder=$(mktemp -d 'FOLDER/XXXXXX')
head -c 32 /dev/urandom | base64 >"$folder/secret"
{
    echo 'name = "suite"'
    echo 'secret_file = "secret"'
    echo 'lease_ms = 3000' # a machine that stands still for a second ends no lease
    for node in 0 1 2; do
        echo '[[node]]'
        echo "id = $node"
        echo 'clients = "127.0.0.1:0"'
        echo 'links = "127.0.0.1:0"'
    done
} >"$folder/cluster.toml"
for node in 1 2; do
    SERVER --cluster "$folder/cluster.toml" --node $node --leave-seconds 0 \
        --end-with-parent $$ $others -t 1 </dev/null >/dev/null 2>&1 &
done
exec SERVER --cluster "$folder/cluster.toml" --node 0 --leave-seconds 0 \
    --end-with-parent $PPID "$@" >/dev/null 2>&1
"#;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    // Node 0 listens where the suite says, the others elsewhere; datagrams are left out.
    #[test]
    fn the_wrapper_starts_three_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let script = wrapper("echo", folder.path()).unwrap();
        let script = script
            .replace(">/dev/null 2>&1 &", "")
            .replace(">/dev/null 2>&1", "");
        let words = [
            "-m",
            "3",
            "-U",
            "7",
            "-o",
            "relaxed_privileges",
            "-s",
            "a b",
        ];
        let mut command = Command::new("sh");
        let output = command
            .args(["-c", &script, "sh"])
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].contains("--node 1") && lines[0].ends_with("-m 3 -t 1"),
            "{said}"
        );
        assert!(
            lines[2].contains("--node 0") && lines[2].ends_with("-m 3 -s a b"),
            "{said}"
        );
    }
}
