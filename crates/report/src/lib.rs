//! Reports of the tools: charts as SVG, tables as text, Markdown or HTML, pages as HTML.
//!
//! ```text
//!   Chart, Bars --svg--> Page <--html-- Table --text, markdown--> terminal, documents
//! ```
//!
//! A page is one file that loads nothing, and everything on it is readable on light and on dark
//! screens. The same input gives the same bytes, so that a drawing in the repository can be drawn
//! again and compared. Callers give plain text; this crate escapes it.
#![forbid(unsafe_code)]

mod axis;
mod bars;
mod chart;
mod colours;
mod number;
mod page;
mod svg;
mod table;

pub use axis::{Axis, Scale, Unit};
pub use bars::{Bar, BarChart, BarGroup};
pub use chart::{Chart, Series};
pub use number::{count, number, time};
pub use page::{Card, Page};
pub use table::{Column, Table};
