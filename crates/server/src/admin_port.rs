//! The admin port: `/metrics` for scrapers, `/healthz` for whoever restarts servers, and `/policy`
//! to see and change what workers decide by.
//!
//! It has a thread of its own, so that a slow scraper delays no request, and hyper on a
//! single-threaded tokio below it, so that HTTP is not home-made. Nothing here runs unless the port
//! was asked for.

use std::{convert::Infallible, io, net::TcpListener, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, runtime, task::LocalSet, time::timeout};

use crate::{metrics, policy::PolicyName, shared::Shared, sync::Relaxed};

/// The longest that one connection may stay.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);

/// How often to look whether the server stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;

/// Answers until the server stops.
pub(crate) fn run(listener: TcpListener, shared: Arc<Shared>) {
    // Without its runtime there is no admin port; the server itself does not depend on it.
    if let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() {
        let local = LocalSet::new();
        let _ = local.block_on(&runtime, accept(listener, shared));
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let open = Arc::new(());
    while !shared.stopping.load(Relaxed) {
        if Arc::strong_count(&open) > CONNECTIONS_MAX {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        match timeout(LOOK_EVERY, listener.accept()).await {
            Err(_elapsed) => {}
            Ok(Err(_)) => tokio::time::sleep(LOOK_EVERY).await,
            Ok(Ok((stream, _))) => {
                let (shared, place) = (Arc::clone(&shared), Arc::clone(&open));
                tokio::task::spawn_local(async move {
                    let _ = timeout(CONNECTION_TIME_MAX, serve(stream, shared)).await;
                    drop(place);
                });
            }
        }
    }
    Ok(())
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&request, &shared);
        async move { Ok::<_, Infallible>(response) }
    });
    // A scraper that breaks off is its own business.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    let (status, kind, body) = match path {
        "/policy" if reads => (
            StatusCode::OK,
            PLAIN,
            format!("{}\n", shared.regimes.current().name),
        ),
        _ if *request.method() == Method::PUT && path.starts_with("/policy/") => {
            set_policy(path.trim_start_matches("/policy/"), shared)
        }
        _ if !reads => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, String::new()),
        "/metrics" => (StatusCode::OK, METRICS, metrics::page(shared)),
        "/healthz" => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        _ => (
            StatusCode::NOT_FOUND,
            PLAIN,
            "/metrics, /healthz or /policy\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// `PUT /policy/NAME`.
fn set_policy(name: &str, shared: &Shared) -> (StatusCode, &'static str, String) {
    if !shared.config.policy_change_allowed {
        let text = "policy change not allowed\n".to_owned();
        return (StatusCode::FORBIDDEN, PLAIN, text);
    }
    match name.parse::<PolicyName>() {
        Ok(name) => {
            shared.regimes.set_policy(name, shared.up_seconds());
            (StatusCode::OK, PLAIN, format!("{name}\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, PLAIN, format!("{error}\n")),
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
