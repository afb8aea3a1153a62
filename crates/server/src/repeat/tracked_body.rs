//! Body of a response that tells whether the client got all of it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use trunkline_wire::error::ApiError;

use super::PendingRequest;
use crate::answer::reply::HttpResponse;

/// Tells `request` when the last part of the response was taken to be sent, or that the response is an error.
pub(crate) fn track(response: HttpResponse, mut request: PendingRequest) -> HttpResponse {
    if let Some(error) = response.extensions().get::<ApiError>() {
        request.failed(error);
        return response;
    }
    response.map(|inner| Body::new(TrackedBody { inner, request }))
}

struct TrackedBody {
    inner: Body,
    request: PendingRequest,
}

impl HttpBody for TrackedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || (polled.is_ready() && self.inner.is_end_stream()) {
            self.request.answered();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
