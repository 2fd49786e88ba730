//! The data plane: one event loop per worker, its flows, buffers and timers.
//!
//! The engine owns sockets, memory and time, and drives the codecs, which own none of them. A
//! flow lives and dies on the worker that accepted it; what workers share and change is small: the
//! replay stores, the book of datagram sessions, counts per client, the health of servers. After start nothing here allocates: every table has a fixed size, reserved
//! virtually and touched on demand, and what does not fit is refused and counted.
//!
//! | module | holds |
//! |---|---|
//! | [`worker`], `listeners` | the loop, listeners, orders from outside |
//! | [`receipt`] | how an order is known to be carried out |
//! | `flow` | the state machine of one connection |
//! | `udp` | datagrams and their sessions |
//! | `names` | sockets under the resolver |
//! | `redirect` | what the firewall gave us |
//! | [`crew`] | what workers pass to each other |
//! | [`guard`], [`clients`], `judges` | what clients may not do, and what goes where |
//! | [`health`], [`probe`] | how a client's servers do, and which one is used |
//! | [`pool`], [`slab`], [`wheel`], [`ring`] | memory and time |
//! | [`role`] | what a listener does, as configured |

#![forbid(unsafe_code)]

pub mod clients;
mod core;
pub mod crew;
mod flow;
pub mod guard;
pub mod health;
mod judges;
mod listeners;
mod names;
pub mod pool;
pub mod probe;
pub mod receipt;
mod redirect;
pub mod ring;
pub mod role;
pub mod slab;
mod token;
pub mod udp;
pub mod wheel;
pub mod worker;
