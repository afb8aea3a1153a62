pub(crate) mod decode;
