//! The terminal: threads that send events, and the loop that draws.
//!
//! Something is drawn only when there is something new, and ratatui sends only the cells that
//! changed, so nothing flickers. The terminal is put back however it ends: by a key, a signal, an
//! error, or a panic (ratatui's hook runs before the message is printed).

use std::{
    process::ExitCode,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use curtail_runtime::Controls;
use ratatui::{DefaultTerminal, crossterm::event};

use super::{
    Target,
    draw::draw,
    sampler::Sampler,
    screen_state::{News, Order, Screen, Step},
};

/// Shows `target` until the user or a signal ends it.
pub(crate) fn run(target: Target, interval: Duration, keys: bool) -> Result<ExitCode> {
    // Before the first thread: threads inherit which signals are blocked.
    let controls = Controls::new().map_err(|error| anyhow!("receiving signals: {}", error.0))?;
    let mut screen = Screen::new(target.address.to_string(), interval, keys);
    let (news_sender, news) = channel();
    let (orders, order_receiver) = channel();
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let sender = news_sender.clone();
    thread::spawn(move || wait_for_signal(controls, &sender));
    let sender = news_sender.clone();
    thread::spawn(move || Sampler::new(target, interval, keys).run(&order_receiver, &sender));
    thread::spawn(move || read_keys(&news_sender));
    let answer = show(&mut terminal, &mut screen, &news, &orders);
    ratatui::restore();
    answer.context("the terminal")?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    news: &Receiver<News>,
    orders: &Sender<Order>,
) -> std::io::Result<()> {
    terminal.draw(|frame| draw(frame, screen))?;
    while let Ok(latest) = news.recv() {
        match screen.step(latest) {
            Step::Nothing => continue,
            Step::End => return Ok(()),
            // If the sampler is gone, so is its end of `news`, which ends this.
            Step::Tell(order) => drop(orders.send(order)),
            Step::Draw => {}
        }
        terminal.draw(|frame| draw(frame, screen))?;
    }
    Ok(())
}

fn wait_for_signal(mut controls: Controls, news: &Sender<News>) {
    // Any of them: also the one that says that the terminal is gone.
    while controls.wait(None).is_none() {}
    let _ = news.send(News::End);
}

fn read_keys(news: &Sender<News>) {
    while let Ok(event) = event::read() {
        if news.send(News::Input(event)).is_err() {
            return;
        }
    }
    let _ = news.send(News::End);
}
