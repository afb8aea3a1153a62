//! OpenAI's older completions of a text: `POST /v1/completions`. The prompt is a turn with one user message.
//!
//! There is no place for reasoning or calls in a completion, so they are left out.

mod encoder;
mod request;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use http::request::Parts;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{AnswerTiming, Message, Role, Turn};
use trunkline_wire::body;
use trunkline_wire::chat::CallFormat;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::{may_name_a_model, missing};
use trunkline_wire::response::Head;
use trunkline_wire::stream::UsageChunk;

use super::{AnswerFormat, Asked, Delivery, Dialect, RunHead};
use crate::app::App;
use crate::dialect::members::{self, MemberTable};
use crate::door::Door;
use encoder::TextEncoder;
use request::CompletionRequest;

pub(crate) struct Completions;

/// Format of a completion, with everything that the request said about it.
pub(crate) struct TextFormat {
    model: String,
    usage: UsageChunk,
    /// The prompt, if the answer has to begin with it.
    echo: Option<String>,
}

/// Adds the routes of this dialect.
pub(crate) fn routes<D: Door>(mut router: Router<Arc<App<D>>>) -> Router<Arc<App<D>>> {
    for base in ["/v1", ""] {
        for slash in ["/", ""] {
            router = router.route(&format!("{base}/completions{slash}"), post(super::answer::<Completions, D>));
        }
    }
    router
}

impl Dialect for Completions {
    type Format = TextFormat;
    const MEMBERS: &'static MemberTable = &members::COMPLETIONS;

    async fn read<D: Door>(_app: &App<D>, _head: &Parts, body: &[u8]) -> Result<Asked<TextFormat>, ApiError> {
        let mut request: CompletionRequest = body::parse(body)?;
        request.check()?;
        let model = request.model.take().ok_or_else(|| missing("model"))?;
        if !may_name_a_model(&model) {
            return Err(ApiError::unknown_model(&[]));
        }
        let prompt = request.take_prompt()?;
        let delivery = if request.is_streamed() { Delivery::Streamed } else { Delivery::Whole };
        let format = TextFormat {
            model: model.clone(),
            usage: request.usage_chunk(),
            echo: request.is_echoed().then(|| prompt.clone()),
        };
        let turn = Turn {
            model,
            messages: vec![Message::new(Role::User, prompt)],
            shown: if request.is_streamed() { AnswerTiming::AsItComes } else { AnswerTiming::AtTheEnd },
            options: request.options(),
            ..Turn::default()
        };
        Ok(Asked { turn, delivery, format })
    }
}

impl AnswerFormat for TextFormat {
    type Frames = TextEncoder;
    type Whole = TextEncoder;

    fn frames(self, run: &RunHead, secrets: Arc<Secrets>) -> TextEncoder {
        TextEncoder::new(head(run, self.model), self.usage, self.echo, secrets)
    }

    fn whole(self, run: &RunHead) -> TextEncoder {
        TextEncoder::new(head(run, self.model), self.usage, self.echo, Arc::default())
    }
}

fn head(run: &RunHead, model: String) -> Head {
    Head { id: ["cmpl-", &run.id].concat(), created: run.created, model, calls: CallFormat::default() }
}
