//! Draws the screen: panels below each other, with heights by importance and room.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Style, Stylize},
    text::Line,
};

use super::{
    number_format::{age, interval},
    panels::{Panel, panels},
    screen_state::Screen,
};

/// Draws all of it.
pub(crate) fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let area = frame.area();
    let mut page = Page { frame, area, y: 0 };
    page.line(title(screen));
    if let Some(reason) = &screen.gone {
        let text = format!("{}: {reason}; trying again", screen.server);
        page.line(Line::styled(text, alarm()));
    }
    if screen.help {
        HELP.iter().for_each(|line| page.line(Line::raw(*line)));
    } else if let Some(view) = &screen.view {
        let panels = panels(
            view,
            &screen.history,
            screen.keys.as_ref(),
            usize::from(area.width),
        );
        let faint = screen.gone.is_some();
        // The last line is the footer's.
        let room = usize::from(page.left().saturating_sub(1));
        for (panel, lines) in panels.iter().zip(shares(&panels, room)) {
            page.panel(panel, lines, faint);
        }
    } else if screen.gone.is_none() {
        page.line(Line::raw("connecting"));
    }
    page.footer();
}

/// Where the next line goes.
struct Page<'a, 'b> {
    frame: &'a mut Frame<'b>,
    area: Rect,
    y: u16,
}

impl Page<'_, '_> {
    fn left(&self) -> u16 {
        self.area.height.saturating_sub(self.y)
    }

    fn line(&mut self, line: Line<'_>) {
        if self.left() == 0 {
            return;
        }
        let area = Rect {
            y: self.y,
            height: 1,
            ..self.area
        };
        self.frame.render_widget(line, area);
        self.y += 1;
    }

    /// The heading and the first lines of a panel, `lines` in all.
    fn panel(&mut self, panel: &Panel, lines: usize, faint: bool) {
        let width = usize::from(self.area.width);
        let mut left = lines;
        if left > 0 && !panel.heading.is_empty() {
            let heading = format!("{:<width$}", panel.heading);
            self.line(Line::raw(heading).reversed());
            left -= 1;
        }
        for text in panel.lines.iter().take(left) {
            let style = if faint {
                Style::new().dim()
            } else {
                Style::new()
            };
            self.line(Line::styled(text.as_str(), style));
        }
    }

    fn footer(&mut self) {
        let bottom = self.area.height.saturating_sub(1);
        if self.y <= bottom {
            self.y = bottom;
            self.line(Line::raw(FOOTER).dim());
        }
    }
}

fn title(screen: &Screen) -> Line<'_> {
    let mut text = format!("curtail top {}", screen.server);
    if let Some(view) = &screen.view {
        text += &format!("   {}   up {}", view.version, age(view.uptime_seconds));
    }
    text += &match screen.paused {
        true => "   PAUSED".to_owned(),
        false => format!("   every {}", interval(screen.interval)),
    };
    Line::raw(text).bold()
}

fn alarm() -> Style {
    Style::new().fg(Color::Red).bold()
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
    "PLAN        up to which size values are small, and the cores for each",
    "behind large  small requests that waited for another connection's large one",
    "busy        large requests refused because too many waited",
    "handed off  connections that went to a large worker for one request",
    "delegated   requests that another worker executed",
    "compacted   writes executed as one with another write of their key",
    "STAGE       work done before requests, and times of sampled requests",
    "",
];

#[cfg(test)]
mod tests;
