//! The cost of the network stack: TCP over loopback, both ends in one thread, so that nobody waits
//! and only the server's calls are timed.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Instant as Clock,
};

use curtail_runtime::{Received, Sent, SocketOptions, Stream, bind_tcp};

use crate::{Problem, STEPS, TOGETHER};

/// Connections, both ends of them.
pub(crate) struct Network {
    servers: Vec<Stream>,
    clients: Vec<TcpStream>,
    /// Cold, as values in a store are.
    memory: Vec<u8>,
    at: usize,
}

impl Network {
    pub(crate) fn new() -> Result<Self, Problem> {
        let listener = bind_tcp(
            ([127, 0, 0, 1], 0).into(),
            SocketOptions {
                backlog: 128,
                listens: true,
            },
        )
        .map_err(|error| format!("loopback: {error}"))?;
        let address = listener.tcp_address().ok_or("loopback has no address")?;
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        while servers.len() < TOGETHER {
            let client = TcpStream::connect(address)?;
            client.set_nodelay(true)?;
            clients.push(client);
            while let Some((stream, _)) = listener.accept()? {
                servers.push(stream);
            }
        }
        Ok(Self {
            servers,
            clients,
            memory: vec![1; 256 << 20],
            at: 0,
        })
    }

    /// Nanoseconds of one call: half of a receive and a send of one small frame.
    pub(crate) fn call(&mut self) -> Result<f64, Problem> {
        let mut buffer = [0; 4096];
        let mut times = Vec::new();
        for _ in 0..STEPS {
            for client in &mut self.clients {
                client.write_all(&[1; 64])?;
            }
            let start = Clock::now();
            for server in &mut self.servers {
                let Received::Bytes(64) = server.receive(&mut buffer) else {
                    return Err("a request did not arrive at once".into());
                };
                let Sent::Bytes(128) = server.send(&buffer[..128]) else {
                    return Err("a reply was not taken".into());
                };
            }
            times.push(start.elapsed().as_nanos() as f64 / (2 * TOGETHER) as f64);
            for client in &mut self.clients {
                client.read_exact(&mut buffer[..128])?;
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times[STEPS / 2])
    }

    /// Nanoseconds of a further frame: of 64 KiB sent and 64 KiB received, the mean.
    pub(crate) fn frame(&mut self) -> Result<f64, Problem> {
        const LONG: usize = 64 << 10;
        let mut buffer = vec![0; LONG];
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        let (server, client) = (&mut self.servers[0], &mut self.clients[0]);
        for _ in 0..STEPS {
            self.at = (self.at + LONG) % (self.memory.len() - LONG);
            let cold = &mut self.memory[self.at..self.at + LONG];
            let start = Clock::now();
            let Sent::Bytes(LONG) = server.send(cold) else {
                return Err("a long reply was not taken at once".into());
            };
            sends.push(start.elapsed().as_nanos() as f64);
            client.read_exact(&mut buffer)?;
            client.write_all(&buffer)?;
            let (mut received, mut ns) = (0, 0.0);
            while received < LONG {
                let start = Clock::now();
                if let Received::Bytes(bytes) = server.receive(&mut cold[received..]) {
                    received += bytes;
                    ns += start.elapsed().as_nanos() as f64;
                }
            }
            receives.push(ns);
        }
        sends.sort_by(f64::total_cmp);
        receives.sort_by(f64::total_cmp);
        let frames = LONG as f64 / f64::from(FRAME_BYTES);
        let call = self.call()?;
        let one = |times: &[f64]| (times[STEPS / 2] - call).max(0.0) / (frames - 1.0);
        Ok((one(&sends) + one(&receives)) / 2.0)
    }
}

/// What a frame of TCP carries on a network of 1,500 bytes.
pub(crate) const FRAME_BYTES: u32 = 1_448;
