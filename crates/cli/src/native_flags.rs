//! The flags of the native datagram path.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use curtail_server::{Config, NativeConfig, NativeMode};

use crate::ranged_numbers::number;

/// The flags; see `--help` for what each means.
#[derive(Args, Debug)]
pub(crate) struct NativeFlags {
    /// UDP and TCP port of curtail's own protocol, the native protocol; 0: not offered, -1: the
    /// system chooses a port (default: 0)
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    native: Option<i32>,
    /// What acknowledges native writes: xdp (a program in the kernel's receive path), io-ack (a
    /// thread), deferred (a worker, before the write is executed) or raw (a worker, afterwards)
    /// (default: xdp with --native-interface if the system allows it, else io-ack)
    #[arg(long, value_name = "MODE")]
    native_mode: Option<String>,
    /// Network interface on which an XDP program in the kernel acknowledges native writes
    #[arg(long, value_name = "NAME")]
    native_interface: Option<String>,
    /// Number of ordered queues for native writes: 16, 32 or 64 (default: 16)
    #[arg(long, value_name = "NUM")]
    native_queues: Option<usize>,
    /// Slots per queue, each of 2 KiB for one waiting write; a power of two (default: the largest
    /// number from 64 to 4096 with which all queues together take at most an eighth of -m; if even
    /// 64 is too many, 64)
    #[arg(long, value_name = "NUM")]
    native_slots: Option<u64>,
    /// Folder in the BPF file system that keeps the XDP program and the queues if the server dies
    /// (default: /sys/fs/bpf/curtail)
    #[arg(long, value_name = "DIR")]
    native_pin: Option<PathBuf>,
}

impl NativeFlags {
    /// What they ask for.
    pub(crate) fn settle(
        &self,
        warnings: &mut Vec<String>,
    ) -> anyhow::Result<Option<NativeConfig>> {
        let port = match self.native {
            None | Some(0) => {
                if let Some(flag) = self.first_given() {
                    bail!("{flag}: it needs --native PORT");
                }
                return Ok(None);
            }
            Some(-1) => 0,
            Some(port) => crate::flags::port_of("--native", port)?,
        };
        let mode = self.native_mode.as_deref().map(str::parse::<NativeMode>);
        let mode = mode.transpose().map_err(anyhow::Error::msg);
        let mode = mode.context("--native-mode")?;
        match (mode, &self.native_interface) {
            (Some(NativeMode::Xdp), None) => {
                bail!("--native-mode xdp: it needs --native-interface NAME");
            }
            (Some(other), Some(_)) if other != NativeMode::Xdp => warnings.push(format!(
                "--native-interface: of no effect with --native-mode {}",
                other.name()
            )),
            _ => {}
        }
        let default = NativeConfig::default();
        Ok(Some(NativeConfig {
            port,
            mode,
            interface: self.native_interface.clone(),
            queues: self.queues(default.queues)?,
            slots: self.slots()?,
            pin: self.native_pin.clone().unwrap_or(default.pin),
            ..NativeConfig::default()
        }))
    }

    /// One of the flags that say how, without the one that says whether.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--native-mode", self.native_mode.is_some()),
            ("--native-interface", self.native_interface.is_some()),
            ("--native-queues", self.native_queues.is_some()),
            ("--native-slots", self.native_slots.is_some()),
            ("--native-pin", self.native_pin.is_some()),
        ];
        let mut given = given.into_iter();
        given.find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    fn queues(&self, default: usize) -> anyhow::Result<usize> {
        match self.native_queues {
            None => Ok(default),
            Some(queues @ (16 | 32 | 64)) => Ok(queues),
            Some(other) => bail!("--native-queues {other}: give 16, 32 or 64"),
        }
    }

    fn slots(&self) -> anyhow::Result<Option<u64>> {
        match self.native_slots {
            Some(slots) if !slots.is_power_of_two() || slots > NativeConfig::SLOTS_MAX => bail!(
                "--native-slots {slots}: give a power of two, at most {}",
                NativeConfig::SLOTS_MAX
            ),
            slots => Ok(slots),
        }
    }
}

/// Applies an extended option of the path; false if it is none.
pub(crate) fn apply(
    config: &mut Config,
    name: &str,
    value: Option<&str>,
    warnings: &mut Vec<String>,
) -> anyhow::Result<bool> {
    let Some(option) = name.strip_prefix("native_") else {
        return Ok(false);
    };
    // Checked without --native, too: a wrong value is wrong before it has an effect.
    let mut unused = NativeConfig::default();
    let is_used = config.native.is_some();
    let native = config.native.as_mut().unwrap_or(&mut unused);
    let text = || value.context("a value is missing");
    match option {
        "backlog" => native.backlog_max = number(value, 0..)?,
        "read_wait_us" => native.read_wait_us = number(value, 0..=READ_WAIT_US_MAX)?,
        "sessions" => native.sessions = number(value, 1..=NativeConfig::SESSIONS_MAX)?,
        "address_sessions" => {
            native.sessions_per_address = number(value, 1..=NativeConfig::ADDRESS_SESSIONS_MAX)?;
        }
        "lease_ms" => native.lease_ms = number(value, NativeConfig::LEASE_MS_MIN..)?,
        "datagram" => native.datagram_bytes_max = number(value, NativeConfig::DATAGRAM_BYTES)?,
        "placement" => native.placement = text()?.parse().map_err(anyhow::Error::msg)?,
        "choice" => native.choice = text()?.parse().map_err(anyhow::Error::msg)?,
        "attach" => native.attach = text()?.parse().map_err(anyhow::Error::msg)?,
        "service_us" => {
            let us: f64 = number(value, 0.0..=SERVICE_US_MAX)?;
            native.service_ns = (us * 1000.0).round() as u64;
        }
        _ => return Ok(false),
    }
    if !is_used {
        warnings.push(format!("-o {name}: of no effect without --native"));
    }
    Ok(true)
}

/// A read that may wait longer than a second has no objective.
const READ_WAIT_US_MAX: u32 = 1_000_000;

/// A second for each execution is more than any experiment asks for.
const SERVICE_US_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_need_the_path_and_are_honoured() {
        let mut config = Config::default();
        let mut warnings = Vec::new();
        assert!(apply(&mut config, "native_backlog", Some("5"), &mut warnings).unwrap());
        assert_eq!(warnings.len(), 1);
        assert!(!apply(&mut config, "idle_timeout", Some("5"), &mut warnings).unwrap());
        config.native = Some(NativeConfig::default());
        for (name, text) in [("native_backlog", "5"), ("native_service_us", "2.5")] {
            assert!(apply(&mut config, name, Some(text), &mut warnings).unwrap());
        }
        assert!(apply(&mut config, "native_backlog", Some("x"), &mut warnings).is_err());
        assert!(!apply(&mut config, "native_what", Some("5"), &mut warnings).unwrap());
        let native = config.native.unwrap();
        assert_eq!((native.backlog_max, native.service_ns), (5, 2500));
    }
}
