//! A server for the service of the example, and a client for its requests.

use std::net::Ipv4Addr;

use anyhow::Result;
use axum::Router;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::handshake;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use monolock_adapters::BoxError;
use tokio::net::{TcpListener, TcpStream};

use super::servers::Running;

/// Serves on a loopback port of its own.
///
/// # Errors
///
/// When none can be had.
pub async fn serve(service: Router) -> Result<Running> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?.to_string();
    let serving = tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(Running {
        name: "the service",
        address,
        keep: Box::new(serving),
    })
}

/// Sends one request on a connection of its own, and reads the answer.
///
/// # Errors
///
/// When no whole answer comes: the request may have been served all the same.
pub async fn send(address: &str, mut request: Request<String>) -> Result<Response<String>, BoxError> {
    request
        .headers_mut()
        .insert(HOST, HeaderValue::from_str(address)?);
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(head, String::from_utf8(body.to_vec())?))
}
