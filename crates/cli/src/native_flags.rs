//! The flags of the native datagram path.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use curtail_server::{Config, NativeConfig, NativeMode};

/// The flags; see `--help` for what each means.
#[derive(Args, Debug)]
pub(crate) struct NativeFlags {
    /// UDP and TCP port of the native protocol; 0 for none, -1 for one that the system chooses
    /// (default: none)
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    native: Option<i32>,
    /// Who acknowledges native writes: xdp (the network card's program), io-ack (a thread),
    /// deferred or raw (the workers, before or after they execute); default: xdp where an
    /// interface is named and the system allows it, else io-ack
    #[arg(long, value_name = "MODE")]
    native_mode: Option<String>,
    /// Interface whose driver acknowledges native writes
    #[arg(long, value_name = "NAME")]
    native_interface: Option<String>,
    /// Ordered queues of the native protocol: 16, 32 or 64
    #[arg(long, value_name = "NUM", default_value_t = 16)]
    native_queues: usize,
    /// Writes that fit into a queue, a power of two (default: 4096, or what an eighth of -m holds)
    #[arg(long, value_name = "NUM")]
    native_slots: Option<u64>,
    /// Where the network card's program and its queues are pinned
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/curtail")]
    native_pin: PathBuf,
}

impl NativeFlags {
    /// What they ask for.
    pub(crate) fn settle(&self) -> anyhow::Result<Option<NativeConfig>> {
        let port = match self.native {
            None | Some(0) => {
                let needs = self.native_mode.is_some() || self.native_interface.is_some();
                if needs {
                    bail!("--native-mode and --native-interface need --native PORT");
                }
                return Ok(None);
            }
            Some(-1) => 0,
            Some(port) => crate::flags::port_of("--native", port)?,
        };
        let mode = self.native_mode.as_deref().map(str::parse::<NativeMode>);
        let mode = mode.transpose().map_err(anyhow::Error::msg);
        let mode = mode.context("--native-mode")?;
        if mode == Some(NativeMode::Xdp) && self.native_interface.is_none() {
            bail!("--native-mode xdp needs --native-interface NAME");
        }
        Ok(Some(NativeConfig {
            port,
            mode,
            interface: self.native_interface.clone(),
            queues: self.native_queues,
            slots: self.native_slots,
            pin: self.native_pin.clone(),
            ..NativeConfig::default()
        }))
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
    let Some(native) = &mut config.native else {
        warnings.push(format!("-o {name}: of no effect without --native"));
        return Ok(true);
    };
    let text = value.context("a value is missing")?;
    match option {
        "backlog" => native.backlog_max = number(text)?,
        "sessions" => native.sessions = number(text)?,
        "address_sessions" => native.sessions_per_address = number(text)?,
        "lease_ms" => native.lease_ms = number(text)?,
        "datagram" => native.datagram_bytes_max = number(text)?,
        "placement" => native.placement = text.parse().map_err(anyhow::Error::msg)?,
        "choice" => native.choice = text.parse().map_err(anyhow::Error::msg)?,
        "attach" => native.attach = text.parse().map_err(anyhow::Error::msg)?,
        "service_us" => {
            let us: f64 = number(text)?;
            native.service_ns = (us * 1000.0).round() as u64;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn number<T: std::str::FromStr>(text: &str) -> anyhow::Result<T> {
    text.parse()
        .ok()
        .with_context(|| format!("'{text}' is not a fitting number"))
}

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
