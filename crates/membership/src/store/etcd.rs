//! A roster in etcd, version 3, over its HTTP/JSON gateway.
//!
//! A reading is etcd's default one, which a quorum answers for: it returns what the last write
//! before its start wrote. A replacement is one transaction that compares the key's revision. etcd
//! is asked for one small value three times in a lease and for nothing else: neither its leases nor
//! its watches are used, which are coarser than what a node may serve by.

use std::{io, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::json;
use ureq::Agent;

use super::{StoredText, ViewStore, ViewStoreError};

/// A roster in etcd.
pub struct EtcdStore {
    agent: Agent,
    /// Without a slash at the end; the one that answered last is first.
    endpoints: Vec<String>,
    key: String,
}

impl EtcdStore {
    /// The store in the key `key` of the etcd whose members listen at `endpoints`
    /// (`http://host:port`). `patience` is how long a reading or a replacement may take if there is
    /// one. Of several each has two thirds of it: a sixth of a lease, as a good store needs.
    pub fn new(endpoints: &[String], key: &str, patience: Duration) -> Self {
        let one = match endpoints.len() {
            0 | 1 => patience,
            _ => patience * 2 / 3,
        };
        let config = Agent::config_builder()
            .timeout_global(Some(one))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            // A connection that a restarted etcd has forgotten would cost a whole reading.
            .max_idle_connections(0)
            .user_agent(concat!("curtail/", env!("CARGO_PKG_VERSION")))
            .build();
        let bare = |url: &String| url.trim_end_matches('/').to_owned();
        Self {
            agent: config.new_agent(),
            endpoints: endpoints.iter().map(bare).collect(),
            key: BASE64_STANDARD.encode(key),
        }
    }

    /// Asks one endpoint after the other until one answers. A request that may change something is
    /// not repeated once it may have arrived.
    fn ask(&mut self, path: &str, body: &str, repeatable: bool) -> Result<String, ViewStoreError> {
        let (mut reasons, mut refusals) = (Vec::new(), 0);
        for _ in 0..self.endpoints.len().min(TRIES_MAX as usize) {
            let Some(endpoint) = self.endpoints.first() else {
                break;
            };
            match self.ask_one(&format!("{endpoint}{path}"), body) {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(reason)) => {
                    reasons.push(reason);
                    refusals += 1;
                }
                Err(Failure::Unsent(reason)) => reasons.push(reason),
                Err(Failure::Unknown(reason)) => {
                    reasons.push(reason);
                    if !repeatable {
                        self.endpoints.rotate_left(1);
                        break;
                    }
                }
            }
            self.endpoints.rotate_left(1);
        }
        let why = match refusals == reasons.len() {
            true => ViewStoreError::Refused,
            false => ViewStoreError::Unreachable,
        };
        Err(why(reasons.join("; ")))
    }

    fn ask_one(&self, url: &str, body: &str) -> Result<String, Failure> {
        let request = self.agent.post(url).content_type("application/json");
        let mut response = request
            .send(body)
            .map_err(|error| Failure::of(url, &error))?;
        let status = response.status().as_u16();
        let answer = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string()
            .map_err(|error| Failure::Unknown(format!("{url}: {error}")))?;
        match status {
            200 => Ok(answer),
            // It was carrying it out when it ended, or when the request did.
            408 | 499 => Err(Failure::Unknown(format!("{url}: {status} {answer}"))),
            400..500 => Err(Failure::Refused(format!("{url}: {status} {answer}"))),
            _ => Err(Failure::Unknown(format!("{url}: {status} {answer}"))),
        }
    }
}

impl ViewStore for EtcdStore {
    fn read(&mut self) -> Result<Option<StoredText>, ViewStoreError> {
        let body = json!({ "key": self.key }).to_string();
        let answer: Range = understand(&self.ask("/v3/kv/range", &body, true)?)?;
        let Some(found) = answer.kvs.first() else {
            return Ok(None);
        };
        let value = BASE64_STANDARD.decode(&found.value);
        let value = value.map_err(|error| ViewStoreError::Strange(error.to_string()))?;
        Ok(Some(StoredText {
            revision: number(&found.mod_revision)?,
            text: String::from_utf8_lossy(&value).into_owned(),
        }))
    }

    fn replace(&mut self, expected: u64, text: &str) -> Result<Option<u64>, ViewStoreError> {
        let body = json!({
            "compare": [{
                "key": self.key,
                "target": "MOD",
                "result": "EQUAL",
                // Of a key that is not there it is 0.
                "mod_revision": expected.to_string(),
            }],
            "success": [{ "request_put": {
                "key": self.key,
                "value": BASE64_STANDARD.encode(text),
            }}],
        });
        let answer: Txn = understand(&self.ask("/v3/kv/txn", &body.to_string(), false)?)?;
        if !answer.succeeded {
            return Ok(None);
        }
        number(&answer.header.revision).map(Some)
    }
}

/// Endpoints that are tried for one request; the next request begins where this one ended.
const TRIES_MAX: u32 = 3;

/// Far more than a roster of 64 nodes has.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Why an endpoint gave no answer.
enum Failure {
    /// It never saw the request.
    Unsent(String),
    /// It may have carried it out.
    Unknown(String),
    /// It did nothing: it refused, or is no etcd.
    Refused(String),
}

impl Failure {
    fn of(url: &str, error: &ureq::Error) -> Self {
        let unsent = match error {
            ureq::Error::Io(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
            ),
            ureq::Error::Timeout(at) => {
                matches!(at, ureq::Timeout::Resolve | ureq::Timeout::Connect)
            }
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
            _ => false,
        };
        let reason = format!("{url}: {error}");
        if unsent {
            Self::Unsent(reason)
        } else {
            Self::Unknown(reason)
        }
    }
}

fn understand<'a, T: Deserialize<'a>>(answer: &'a str) -> Result<T, ViewStoreError> {
    serde_json::from_str(answer).map_err(|error| {
        ViewStoreError::Strange(format!(
            "{error}; check that every endpoint is an etcd server"
        ))
    })
}

/// The gateway writes 64-bit numbers as text.
fn number(text: &str) -> Result<u64, ViewStoreError> {
    text.parse()
        .map_err(|_| ViewStoreError::Strange(format!("revision \"{text}\" of etcd is no number")))
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    mod_revision: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Txn {
    header: Header,
    #[serde(default)]
    succeeded: bool,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    revision: String,
}
