//! OpenAI words and ours.
