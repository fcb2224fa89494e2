//! Prints one view, as text or as JSON.

use serde::Serialize;

use super::{
    history::History, number_format::age, panels::panels, rates::View, watched_keys::HotKeys,
};

/// What there is to tell.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) server: String,
    #[serde(flatten)]
    pub(crate) view: View,
    /// The hottest keys, if they were wanted, or why they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<Result<HotKeys, String>>,
    #[serde(skip)]
    pub(crate) history: History,
}

impl Report {
    /// The screen's panels, one below the other.
    pub(crate) fn text(&self) -> String {
        let (server, view) = (&self.server, &self.view);
        let interval = view.interval_seconds.unwrap_or(0.0);
        let uptime = age(view.uptime_seconds);
        let version = &view.version;
        let mut text = format!("{server}   {version}   up {uptime}   over {interval:.1} s\n");
        for panel in panels(view, &self.history, self.keys.as_ref(), WIDTH) {
            text.push('\n');
            let heading = Some(&panel.heading).filter(|heading| !heading.is_empty());
            for line in heading.into_iter().chain(&panel.lines) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// All that is known, in one object.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

const WIDTH: usize = 80;
