//! The admin port: `/metrics` for scrapers, `/livez` for a supervisor that restarts servers,
//! `/readyz` for a load balancer (`/healthz` is the same), and `/policy` to see and change what
//! workers decide by.
//!
//! It has a thread of its own, so that a slow scraper delays no request, and hyper on a
//! single-threaded tokio below it, so that HTTP is not home-made. Nothing here runs unless the port
//! was asked for.

use std::{
    cell::RefCell,
    convert::Infallible,
    io,
    net::TcpListener,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, runtime, task::LocalSet, time::timeout};

use crate::{
    config::policy_name::PolicyName,
    exporter::{
        health::{self, Pulse},
        prometheus,
    },
    limits::{HTTP_CONNECTION_TIME_MAX, HTTP_CONNECTIONS_MAX},
    sync::Relaxed,
    worker::shared::Shared,
};

/// How often to look whether the server stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What connections are answered from.
struct Port {
    shared: Arc<Shared>,
    pulse: RefCell<Pulse>,
}

/// Answers until the server stops.
pub(crate) fn run(listener: TcpListener, shared: Arc<Shared>) {
    // Without its runtime there is no admin port; the server itself does not depend on it.
    if let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() {
        let local = LocalSet::new();
        let pulse = RefCell::new(Pulse::new(Instant::now()));
        let port = Rc::new(Port { shared, pulse });
        let _ = local.block_on(&runtime, accept(listener, port));
    }
}

async fn accept(listener: TcpListener, port: Rc<Port>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let open = Arc::new(());
    while !port.shared.stopping.load(Relaxed) {
        let now = Instant::now();
        port.pulse.borrow_mut().look(&port.shared, now);
        if Arc::strong_count(&open) > HTTP_CONNECTIONS_MAX {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        match timeout(LOOK_EVERY, listener.accept()).await {
            Err(_elapsed) => {}
            Ok(Err(error)) => {
                port.shared.note_accept_error(&error);
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Ok(Ok((stream, _))) => {
                let (port, place) = (Rc::clone(&port), Arc::clone(&open));
                tokio::task::spawn_local(async move {
                    let _ = timeout(HTTP_CONNECTION_TIME_MAX, serve(stream, port)).await;
                    drop(place);
                });
            }
        }
    }
    Ok(())
}

async fn serve(stream: TcpStream, port: Rc<Port>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&request, &port);
        async move { Ok::<_, Infallible>(response) }
    });
    // A scraper that breaks off is its own business.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(request: &Request<Incoming>, port: &Port) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let allowed = match path {
        "/metrics" | "/livez" | "/readyz" | "/healthz" | "/policy" => READS,
        _ if path.starts_with(POLICY) => PUTS,
        _ => return respond(StatusCode::NOT_FOUND, PATHS.to_owned()),
    };
    if !allowed.split(", ").any(|method| method == request.method()) {
        let text = format!("{path} takes {allowed}\n");
        let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, text);
        let allowed = HeaderValue::from_static(allowed);
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let shared = &*port.shared;
    match path {
        "/metrics" => {
            let page = prometheus::page(shared, health::unready(shared).is_none());
            let mut response = respond(StatusCode::OK, page);
            let kind = HeaderValue::from_static(METRICS);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        "/livez" => judge(port.pulse.borrow().stuck(shared)),
        "/readyz" | "/healthz" => judge(health::unready(shared)),
        "/policy" => {
            let name = shared.snapshots.current().name;
            respond(StatusCode::OK, format!("{name}\n"))
        }
        _ => set_policy(path.trim_start_matches(POLICY), shared),
    }
}

/// An answer in plain text.
fn respond(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(PLAIN);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// All is well, or why not in one line.
fn judge(fault: Option<impl std::fmt::Display>) -> Response<Full<Bytes>> {
    match fault {
        None => respond(StatusCode::OK, "ok\n".to_owned()),
        Some(fault) => respond(StatusCode::SERVICE_UNAVAILABLE, format!("{fault}\n")),
    }
}

/// `PUT /policy/NAME`.
fn set_policy(name: &str, shared: &Shared) -> Response<Full<Bytes>> {
    if !shared.config.policy_change_allowed {
        let text = "the policy is fixed (--fixed-policy, --tier disk or --tier-file)\n".to_owned();
        return respond(StatusCode::FORBIDDEN, text);
    }
    match name.parse::<PolicyName>() {
        Ok(name) => {
            shared.change_policy(name, &"the admin port");
            respond(StatusCode::OK, format!("{name}\n"))
        }
        Err(error) => respond(StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

/// Methods as `Allow` spells them.
const READS: &str = "GET, HEAD";
const PUTS: &str = "PUT";

/// What stands before a policy's name.
const POLICY: &str = "/policy/";

const PATHS: &str = "/metrics, /livez, /readyz, /healthz or /policy\n";
const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
