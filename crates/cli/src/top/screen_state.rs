//! The state of the screen: the last view, whether the server answers, and the effect of keys.
//!
//! It is told everything and touches nothing, so tests press keys without a terminal.

use std::time::Duration;

use super::{history::History, rates::View, sample::Sample, watched_keys::HotKeys};

/// The state behind what is drawn.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) server: String,
    pub(crate) interval: Duration,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// Why the server does not answer, if it does not.
    pub(crate) gone: Option<String>,
    pub(crate) view: Option<View>,
    pub(crate) history: History,
    /// Whether keys are looked at, and what was seen, or why nothing was.
    pub(crate) keys_wanted: bool,
    pub(crate) keys: Option<Result<HotKeys, String>>,
    last: Option<Box<Sample>>,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum News {
    Sampled(Box<Sample>),
    /// The server did not answer; why.
    Gone(String),
    /// The hottest keys, or why they are not known.
    Keys(Result<HotKeys, String>),
    /// A key was pressed: the byte that a terminal in raw mode sends for it.
    Key(u8),
    /// The terminal has another size.
    Resized,
    /// The process is to end.
    End,
}

/// What the sampler is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    Interval(Duration),
    Pause(bool),
    Keys(bool),
}

/// What follows from news.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Draw,
    Tell(Order),
    Nothing,
    End,
}

const CONTROL_C: u8 = 3;
const ESCAPE: u8 = 0x1b;

/// Between which `+` and `-` step.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

impl Screen {
    pub(crate) fn new(server: String, interval: Duration, keys_wanted: bool) -> Self {
        Self {
            server,
            interval,
            paused: false,
            help: false,
            gone: None,
            view: None,
            history: History::default(),
            keys_wanted,
            keys: None,
            last: None,
        }
    }

    /// Takes news in, and says what is to be done.
    pub(crate) fn step(&mut self, news: News) -> Step {
        match news {
            News::Sampled(sample) => self.show(sample),
            News::Gone(reason) => {
                self.gone = Some(reason);
                Step::Draw
            }
            // What comes after they were switched off is no longer wanted.
            News::Keys(keys) => {
                self.keys = self.keys_wanted.then_some(keys);
                Step::Draw
            }
            News::Key(key) => self.press(key),
            News::Resized => Step::Draw,
            News::End => Step::End,
        }
    }

    fn show(&mut self, sample: Box<Sample>) -> Step {
        let view = View::between(self.last.as_deref(), &sample);
        self.history.add(&view);
        self.view = Some(view);
        self.gone = None;
        self.last = Some(sample);
        Step::Draw
    }

    fn press(&mut self, key: u8) -> Step {
        match key {
            CONTROL_C | b'q' => Step::End,
            b'p' | b' ' => {
                self.paused = !self.paused;
                Step::Tell(Order::Pause(self.paused))
            }
            b'k' => {
                self.keys_wanted = !self.keys_wanted;
                self.keys = None;
                Step::Tell(Order::Keys(self.keys_wanted))
            }
            b'+' | b'=' => self.set_interval(true),
            b'-' => self.set_interval(false),
            b'?' | b'h' => {
                self.help = !self.help;
                Step::Draw
            }
            ESCAPE if self.help => {
                self.help = false;
                Step::Draw
            }
            _ => Step::Nothing,
        }
    }

    fn set_interval(&mut self, longer: bool) -> Step {
        let mut steps = INTERVALS_MS.into_iter().map(Duration::from_millis);
        let next = match longer {
            true => steps.find(|step| *step > self.interval),
            false => steps.rfind(|step| *step < self.interval),
        };
        let Some(next) = next else {
            return Step::Nothing;
        };
        self.interval = next;
        Step::Tell(Order::Interval(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(screen: &mut Screen, key: char) -> Step {
        screen.step(News::Key(u8::try_from(key).unwrap()))
    }

    fn screen() -> Screen {
        Screen::new("cache:1".to_owned(), Duration::from_secs(1), false)
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, 'p'), Step::Tell(Order::Pause(true)));
        assert_eq!(press(&mut screen, 'p'), Step::Tell(Order::Pause(false)));
        assert_eq!(press(&mut screen, 'k'), Step::Tell(Order::Keys(true)));
        screen.step(News::Keys(Ok(HotKeys::default())));
        assert!(screen.keys.is_some());
        assert_eq!(press(&mut screen, 'k'), Step::Tell(Order::Keys(false)));
        screen.step(News::Keys(Ok(HotKeys::default())));
        assert!(screen.keys.is_none(), "late keys are not wanted");
        assert_eq!(press(&mut screen, '?'), Step::Draw);
        assert!(screen.help);
        assert_eq!(press(&mut screen, '\x1b'), Step::Draw);
        assert!(!screen.help);
        assert_eq!(press(&mut screen, 'x'), Step::Nothing);
        assert_eq!(press(&mut screen, 'q'), Step::End);
        assert_eq!(press(&mut screen, '\x03'), Step::End);
        assert_eq!(press(&mut screen, 'c'), Step::Nothing);
    }

    #[test]
    fn intervals_go_up_and_down_and_end() {
        let mut screen = screen();
        let interval = |ms| Step::Tell(Order::Interval(Duration::from_millis(ms)));
        assert_eq!(press(&mut screen, '+'), interval(2000));
        screen.interval = Duration::from_millis(700);
        assert_eq!(press(&mut screen, '-'), interval(500));
        for _ in 0..20 {
            press(&mut screen, '-');
        }
        assert_eq!(screen.interval, Duration::from_millis(100));
        assert_eq!(press(&mut screen, '-'), Step::Nothing);
    }

    #[test]
    fn a_server_that_is_gone_leaves_its_last_view() {
        let mut screen = screen();
        screen.step(News::Sampled(Box::default()));
        assert_eq!(screen.step(News::Gone("why".to_owned())), Step::Draw);
        assert!(screen.view.is_some() && screen.gone.is_some());
        screen.step(News::Sampled(Box::default()));
        assert!(screen.gone.is_none());
    }
}
