//! The terminal: threads that send events, and the loop that draws.
//!
//! Something is drawn only when there is something new.

use std::{
    process::ExitCode,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use curtail_runtime::Controls;

use super::{
    Target,
    draw::draw,
    sampler::Sampler,
    screen_state::{News, Order, Screen, Step},
    terminal::{Keys, Terminal, TerminalNews},
};

/// Shows `target` until the user or a signal ends it.
pub(crate) fn run(target: Target, interval: Duration, keys: bool) -> Result<ExitCode> {
    // Before the first thread: threads inherit which signals are blocked.
    let controls = Controls::new().map_err(|error| anyhow!("receiving signals: {}", error.0))?;
    let mut screen = Screen::new(target.address.to_string(), interval, keys);
    let (news_sender, news) = channel();
    let (orders, order_receiver) = channel();
    let mut terminal = Terminal::enter().context("the terminal")?;
    let keys_pressed = terminal.keys().context("the terminal")?;
    let sender = news_sender.clone();
    thread::spawn(move || wait_for_signal(controls, &sender));
    let sender = news_sender.clone();
    thread::spawn(move || Sampler::new(target, interval, keys).run(&order_receiver, &sender));
    thread::spawn(move || read_keys(keys_pressed, &news_sender));
    let answer = show(&mut terminal, &mut screen, &news, &orders);
    drop(terminal);
    answer.context("the terminal")?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    terminal: &mut Terminal,
    screen: &mut Screen,
    news: &Receiver<News>,
    orders: &Sender<Order>,
) -> std::io::Result<()> {
    terminal.show(|size| draw(screen, size))?;
    while let Ok(latest) = news.recv() {
        match screen.step(latest) {
            Step::Nothing => continue,
            Step::End => return Ok(()),
            // If the sampler is gone, so is its end of `news`, which ends this.
            Step::Tell(order) => drop(orders.send(order)),
            Step::Draw => {}
        }
        terminal.show(|size| draw(screen, size))?;
    }
    Ok(())
}

fn wait_for_signal(mut controls: Controls, news: &Sender<News>) {
    // Any of them: also the one that says that the terminal is gone.
    while controls.wait(None).is_none() {}
    let _ = news.send(News::End);
}

fn read_keys(mut keys: Keys, news: &Sender<News>) {
    while let Ok(latest) = keys.wait() {
        let mut latest = match latest {
            TerminalNews::Keys(keys) => keys.into_iter().map(News::Key).collect(),
            TerminalNews::Resized => vec![News::Resized],
        };
        if latest.drain(..).any(|one| news.send(one).is_err()) {
            return;
        }
    }
    let _ = news.send(News::End);
}
