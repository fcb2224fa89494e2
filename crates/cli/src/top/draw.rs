//! Draws the screen: panels below each other, with heights by importance and room.

use super::{
    number_format::{age, interval},
    panels::{Panel, panels},
    screen_state::Screen,
    terminal::{ScreenLine, ScreenSize, Style},
};

/// The lines of all of it, from the top.
pub(crate) fn draw(screen: &Screen, size: ScreenSize) -> Vec<ScreenLine> {
    let lines = Vec::with_capacity(size.rows);
    let mut page = Page { size, lines };
    page.line(title(screen), Style::Bold);
    if let Some(reason) = &screen.gone {
        let text = format!("{}: {reason}; trying again", screen.server);
        page.line(text, Style::Alarm);
    }
    if screen.help {
        HELP.iter().for_each(|line| page.line(*line, Style::Plain));
    } else if let Some(view) = &screen.view {
        let panels = panels(view, &screen.history, screen.keys.as_ref(), size.columns);
        let style = match screen.gone {
            Some(_) => Style::Faint,
            None => Style::Plain,
        };
        // The last line is the footer's.
        let room = page.left().saturating_sub(1);
        for (panel, lines) in panels.iter().zip(shares(&panels, room)) {
            page.panel(panel, lines, style);
        }
    } else if screen.gone.is_none() {
        page.line("connecting", Style::Plain);
    }
    page.footer();
    page.lines
}

/// Lines, and the room for them.
struct Page {
    size: ScreenSize,
    lines: Vec<ScreenLine>,
}

impl Page {
    fn left(&self) -> usize {
        self.size.rows - self.lines.len()
    }

    fn line(&mut self, text: impl Into<String>, style: Style) {
        if self.left() > 0 {
            let text = text.into();
            self.lines.push(ScreenLine { text, style });
        }
    }

    /// The heading and the first lines of a panel, `lines` in all.
    fn panel(&mut self, panel: &Panel, lines: usize, style: Style) {
        let width = self.size.columns;
        let mut left = lines;
        if left > 0 && !panel.heading.is_empty() {
            self.line(format!("{:<width$}", panel.heading), Style::Reversed);
            left -= 1;
        }
        let texts = panel.lines.iter().take(left);
        texts.for_each(|text| self.line(text.as_str(), style));
    }

    fn footer(&mut self) {
        while self.left() > 1 {
            self.line("", Style::Plain);
        }
        self.line(FOOTER, Style::Faint);
    }
}

fn title(screen: &Screen) -> String {
    let mut text = format!("curtail top {}", screen.server);
    if let Some(view) = &screen.view {
        text += &format!("   {}   up {}", view.version, age(view.uptime_seconds));
    }
    text += &match screen.paused {
        true => "   PAUSED".to_owned(),
        false => format!("   every {}", interval(screen.interval)),
    };
    text
}

/// How many lines each panel gets: first what matters of each, in their order, then the rest.
fn shares(panels: &[Panel], room: usize) -> Vec<usize> {
    let mut left = room;
    let mut shares = Vec::new();
    for panel in panels {
        let heading = panel.height() - panel.lines.len();
        let share = (heading + panel.least).min(panel.height()).min(left);
        shares.push(share);
        left -= share;
    }
    for (panel, share) in panels.iter().zip(&mut shares) {
        let more = (panel.height() - *share).min(left);
        *share += more;
        left -= more;
    }
    shares
}

const FOOTER: &str = "q quit   p pause   + - interval   k hottest keys   ? help";

const HELP: [&str; 21] = [
    "",
    "q, Ctrl-C   quit                    p, space   pause and go on",
    "+  -        longer, shorter interval    ?, h, Esc  this help",
    "k           the hottest keys, watched for 0.1 s of each interval, which",
    "            costs the server some work for each request in that time",
    "",
    "requests    all commands; reads and writes are keys read and changed",
    "cpu         of the server's process; 100 % is one processor",
    "CLUSTER     its state and events, as the sampled node knows them",
    "WORKER      a thread; `large N` serve nothing but large values",
    "ROLE        the sizes it serves; in parentheses: on standby",
    "QUEUE       connections that wait for a turn, messages of other threads",
    "us/TURN     processor time of sampled turns: mean, p99, longest",
    "PLAN        the size below which values are small; cores for small + large",
    "behind large  small requests that waited for a value of at least size_threshold",
    "busy        large requests refused because too many waited",
    "handed off  connections that went to a large worker for one request",
    "delegated   requests sent to another worker for execution",
    "compacted   writes executed as one with another write of their key",
    "STAGE       work done before requests, and times of sampled requests",
    "",
];

#[cfg(test)]
mod tests;
