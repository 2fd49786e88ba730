//! Users of the SOCKS server: the file they are in, their passwords, and who was right a moment ago.
//!
//! [`Userlist`] is the file as a whole, immutable: share it in an `Arc`, and verify on threads away
//! from the workers, each with a [`Memory`] of its own, since one hash takes some 20 ms. Workers ask
//! [`Verified`] first, which costs next to nothing. [`operation`] is `adit user`.
//!
//! Passwords and hashes are wiped when dropped and shown nowhere, neither in an error nor in `Debug`.
//!
//! Not here: threads and their number, prompts, the external command.

#![forbid(unsafe_code)]

mod cache;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod hash;
mod list;
pub mod operation;

pub use cache::{TagKey, Verified};
pub use file::LockedFile;
pub use hash::{HashError, Memory, PasswordHash, SALT_LEN};
pub use list::{
    Action, CREDENTIAL_LEN_MAX, CredentialError, ListError, ListErrorKind, Userlist, check_name,
    check_password, with_user, without_user,
};
