//! The terminal of `top`: raw mode, the second screen, keys, and lines that are sent only when they
//! changed.
//!
//! The terminal is put back however `top` ends: by a key, a signal, an error, or a panic (the hook
//! runs before the message is printed).

use std::{
    env,
    fs::File,
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::fd::AsFd as _,
    panic,
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ScreenSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// One line of the screen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ScreenLine {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// How a line is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Faint,
    Reversed,
    /// Bold and red.
    Alarm,
}

/// A terminal that shows nothing but the lines drawn on it, until it is dropped.
pub(crate) struct Terminal {
    modes: Arc<Modes>,
    size: ScreenSize,
    shown: Vec<ScreenLine>,
    has_colors: bool,
}

/// The terminal, and its modes as `top` found them.
struct Modes {
    file: File,
    found: Termios,
}

/// What a terminal says.
#[derive(Debug)]
pub(crate) enum TerminalNews {
    Keys(Vec<u8>),
    Resized,
}

/// Where keys come from.
pub(crate) struct Keys {
    file: File,
    size: ScreenSize,
}

/// Second screen, no cursor, no wrapping of lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const CLEAR: &str = "\x1b[2J";

/// How often the size is compared while no key is pressed.
const RESIZE_CHECK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

impl Terminal {
    /// Takes the terminal of standard input, or else the one that controls this process.
    pub(crate) fn enter() -> io::Result<Self> {
        let file = open()?;
        let found = tcgetattr(file.as_fd())?;
        let mut raw = found.clone();
        raw.make_raw();
        tcsetattr(file.as_fd(), OptionalActions::Now, &raw)?;
        let modes = Arc::new(Modes { file, found });
        let (hook, at_panic) = (panic::take_hook(), Arc::clone(&modes));
        panic::set_hook(Box::new(move |panic| {
            at_panic.restore();
            hook(panic);
        }));
        let terminal = Self {
            modes,
            size: ScreenSize::default(),
            shown: Vec::new(),
            has_colors: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        send(ENTER)?;
        Ok(terminal)
    }

    /// Its keys, for another thread.
    pub(crate) fn keys(&self) -> io::Result<Keys> {
        let file = self.modes.file.try_clone()?;
        let size = size_of(&file);
        Ok(Keys { file, size })
    }

    /// Shows the lines that `draw` returns for the present size.
    pub(crate) fn show(
        &mut self,
        draw: impl FnOnce(ScreenSize) -> Vec<ScreenLine>,
    ) -> io::Result<()> {
        let mut bytes = String::new();
        let size = size_of(&self.modes.file);
        if size != self.size {
            bytes += CLEAR;
            self.size = size;
            self.shown.clear();
        }
        let lines = draw(size);
        for row in 0..lines.len().max(self.shown.len()) {
            let line = lines.get(row);
            if line == self.shown.get(row) {
                continue;
            }
            // Erased first: behind a line of full width, some terminals erase its last column.
            bytes += &format!("\x1b[{};1H\x1b[2K", row + 1);
            if let Some(line) = line {
                let text = visible(&line.text, size.columns);
                bytes += &format!("{}{text}\x1b[0m", self.escape(line.style));
            }
        }
        self.shown = lines;
        send(&bytes)
    }

    fn escape(&self, style: Style) -> &'static str {
        match style {
            Style::Plain => "",
            Style::Faint => "\x1b[2m",
            Style::Reversed => "\x1b[7m",
            Style::Alarm if self.has_colors => "\x1b[1;31m",
            Style::Bold | Style::Alarm => "\x1b[1m",
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.modes.restore();
    }
}

impl Modes {
    fn restore(&self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(self.file.as_fd(), OptionalActions::Now, &self.found);
        let _ = send(LEAVE);
    }
}

impl Keys {
    /// Waits for keys or for another size; `Err` when the terminal is gone.
    pub(crate) fn wait(&mut self) -> io::Result<TerminalNews> {
        loop {
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, Some(&RESIZE_CHECK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.read(),
                Err(error) => return Err(error.into()),
            }
            let size = size_of(&self.file);
            if size != self.size {
                self.size = size;
                return Ok(TerminalNews::Resized);
            }
        }
    }

    fn read(&mut self) -> io::Result<TerminalNews> {
        let mut bytes = [0; 64];
        let count = self.file.read(&mut bytes)?;
        match bytes.get(..count) {
            None | Some([]) => Err(io::ErrorKind::UnexpectedEof.into()),
            // Arrows and the like are sequences that begin with escape.
            Some([0x1b, _, ..]) => Ok(TerminalNews::Keys(Vec::new())),
            Some(keys) => Ok(TerminalNews::Keys(keys.to_vec())),
        }
    }
}

fn open() -> io::Result<File> {
    let input = io::stdin();
    match input.is_terminal() {
        true => Ok(File::from(input.as_fd().try_clone_to_owned()?)),
        false => File::options().read(true).write(true).open("/dev/tty"),
    }
}

/// A terminal that does not know its size counts as the smallest usual one.
fn size_of(terminal: &File) -> ScreenSize {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => ScreenSize {
            columns: usize::from(size.ws_col),
            rows: usize::from(size.ws_row),
        },
        _ => ScreenSize {
            columns: 80,
            rows: 24,
        },
    }
}

fn send(bytes: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes.as_bytes())?;
    output.flush()
}

/// As many characters of `text` as there are columns; a character that would steer the terminal is
/// shown as a question mark.
pub(crate) fn visible(text: &str, columns: usize) -> String {
    let shown = |one: char| if one.is_control() { '?' } else { one };
    text.chars().take(columns).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_neither_steers_the_terminal_nor_leaves_its_line() {
        assert_eq!(visible("a\x1b[31m\u{9b}b", 80), "a?[31m?b");
        assert_eq!(visible("größer", 4), "größ");
        assert_eq!(visible("x", 0), "");
    }
}
