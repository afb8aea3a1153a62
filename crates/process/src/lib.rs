//! Starts processes and keeps them: see the modules.
