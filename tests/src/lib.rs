//! Drives the real programs from outside: see README.md here.
