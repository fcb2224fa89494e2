//! A page of HTML: one file that loads nothing, for light and dark screens.

use std::fmt::Write as _;

use crate::{
    chart::Chart,
    colours::{SERIES, dark_rules, variables},
    table::Table,
};

/// A page before it is finished, from the top down.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

/// One number that a page is for, in large letters.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// Whose number.
    pub name: String,
    /// More about whose, in soft letters.
    pub about: String,
    /// The number.
    pub number: String,
    /// What it says.
    pub text: String,
}

const STYLE: &str = include_str!("page.css");

impl Page {
    /// A page with this title in the browser's frame.
    pub fn new(title: &str) -> Self {
        Self {
            title: escape(title),
            body: String::new(),
        }
    }

    /// The heading of the page.
    pub fn top(&mut self, text: &str) {
        self.put("h1", "", text);
    }

    /// The heading of a part.
    pub fn heading(&mut self, text: &str) {
        self.put("h2", "", text);
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        self.put("p", "", text);
    }

    /// A paragraph in soft letters.
    pub fn soft(&mut self, text: &str) {
        self.put("p", " class=\"soft\"", text);
    }

    /// Text whose lines and blanks stay as they are.
    pub fn verbatim(&mut self, text: &str) {
        self.put("pre", "", text);
    }

    /// A box that catches the eye.
    pub fn warning(&mut self, title: &str, lines: &[String]) {
        self.body += "<div class=\"warn\" role=\"alert\">";
        self.put("b", "", &format!("\u{26a0} {title}"));
        self.list("ul", lines);
        self.body += "</div>\n";
    }

    /// Numbered lines in soft letters; nothing without a line.
    pub fn notes(&mut self, title: &str, lines: &[String]) {
        if !lines.is_empty() {
            self.soft(title);
            self.list("ol", lines);
        }
    }

    /// Cards beside each other, in the colours of the series.
    pub fn cards(&mut self, cards: &[Card]) {
        self.body += "<div class=\"cards\">";
        for (number, card) in cards.iter().enumerate() {
            let colour = number % SERIES.len();
            let _ = write!(
                self.body,
                "<div class=\"card\" style=\"border-color:var(--c{colour})\">{} \
                 <span class=\"soft\">{}</span><b>{}</b>{}</div>",
                escape(&card.name),
                escape(&card.about),
                escape(&card.number),
                escape(&card.text)
            );
        }
        self.body += "</div>\n";
    }

    /// Charts beside each other where they fit.
    pub fn charts(&mut self, charts: &[Chart]) {
        self.body += "<div class=\"charts\">\n";
        self.body.extend(charts.iter().map(Chart::svg));
        self.body += "</div>\n";
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        self.body += &table.html();
    }

    /// The file.
    pub fn html(&self) -> String {
        let Self { title, body } = self;
        let (variables, dark) = (variables(), dark_rules(body));
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <title>{title}</title>\n<style>\n{variables}{STYLE}{dark}\n</style></head>\n\
             <body>\n{body}</body></html>\n"
        )
    }

    fn put(&mut self, tag: &str, class: &str, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "<{tag}{class}>{}</{tag}>", escape(text));
    }

    fn list(&mut self, tag: &str, lines: &[String]) {
        let _ = write!(self.body, "<{tag} class=\"soft\">");
        lines.iter().for_each(|line| self.put("li", "", line));
        let _ = write!(self.body, "</{tag}>");
    }
}

/// Text that cannot end an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Series;

    /// Goal: everything given is on the page, as text, and nothing is loaded from elsewhere.
    #[test]
    fn a_page_shows_all_and_loads_nothing() {
        let mut page = Page::new("<title>");
        page.top("top & all");
        page.warning("first", &["<script src=\"http://x\">".into()]);
        page.notes("none", &[]);
        page.notes("some", &["a note".into()]);
        page.cards(&[Card {
            name: "one".into(),
            number: "50k/s".into(),
            ..Card::default()
        }]);
        let series = Series {
            points: vec![(1.0, 2.0)],
            ..Series::default()
        };
        page.charts(&[Chart {
            series: vec![series],
            ..Chart::default()
        }]);
        page.table(&Table::new(&["head"], &[]));
        let html = page.html();
        for part in [
            "&lt;title&gt;",
            "top &amp; all",
            "a note",
            "50k/s",
            "<svg",
            "head",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("none</p>"));
        for loads in ["src=\"", "href=", "<script", "<link", "@import", "url("] {
            assert!(!html.contains(loads), "{loads}");
        }
    }
}
