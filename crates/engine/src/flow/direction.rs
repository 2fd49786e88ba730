//! One direction of a flow: what waits in it and how far it has ended.

use std::io::IoSlice;

use adit_sys::net::{self, Io};

use crate::flow::Socket;
use crate::pool::{CHAIN_SLICES_MAX, Chain, Exhausted, Pool};

/// Bytes that a flow may read at once after its sink took less than it was given.
const WINDOW_MIN: u32 = 16 * 1024;

/// State of one direction.
pub(crate) struct Direction {
    /// Read from the source but not understood yet: part of a greeting, the tail of a record.
    pub(crate) input: Chain,
    /// The input may hold whole records: look at it before reading more.
    pub(crate) input_unopened: bool,
    /// Ready for the sink, which had no room.
    pub(crate) output: Chain,
    /// The source has ended (or has nothing more that belongs to this flow).
    pub(crate) source_ended: bool,
    /// The sink was told.
    pub(crate) finished: bool,
    /// Most bytes to read at once: what the sink took last time, so that a slow one does not
    /// fill the pool again and again.
    pub(crate) window: u32,
    /// The sink has taken bytes since this was last looked at.
    pub(crate) moved: bool,
}

impl Direction {
    pub(crate) const NEW: Self = Self {
        input: Chain::EMPTY,
        input_unopened: false,
        output: Chain::EMPTY,
        source_ended: false,
        finished: false,
        window: u32::MAX,
        moved: false,
    };

    /// Bytes of the pool that wait here.
    pub(crate) const fn held(&self) -> usize {
        self.input.len() + self.output.len()
    }

    pub(crate) fn release(&mut self, pool: &mut Pool) {
        pool.clear(&mut self.input);
        pool.clear(&mut self.output);
    }

    /// Writes waiting bytes; false while some are left.
    pub(crate) fn flush(&mut self, pool: &mut Pool, sink: &mut Socket) -> Result<bool, Broken> {
        while !self.output.is_empty() {
            if !sink.writable {
                return Ok(false);
            }
            let mut slices = [IoSlice::new(&[]); CHAIN_SLICES_MAX];
            let count = pool.slices(&self.output, &mut slices);
            let asked = slices[..count].iter().map(|s| s.len()).sum();
            let io = net::write_vectored(&sink.fd, &slices[..count]);
            sink.note_write(io, asked);
            match io {
                Io::Moved(n) => {
                    self.moved = true;
                    pool.consume(&mut self.output, n);
                }
                Io::Blocked => {}
                Io::End | Io::Failed(_) => return Err(Broken),
            }
        }
        Ok(true)
    }

    /// Writes a run of bytes; what does not fit waits in the output.
    pub(crate) fn write(
        &mut self,
        pool: &mut Pool,
        sink: &mut Socket,
        run: &[u8],
    ) -> Result<(), Broken> {
        let mut taken = 0;
        if self.output.is_empty() && sink.writable {
            match sink.write(run) {
                Io::Moved(n) => taken = n,
                Io::Blocked => {}
                Io::End | Io::Failed(_) => return Err(Broken),
            }
            self.note_taken(taken, run.len());
        }
        Ok(pool.push(&mut self.output, &run[taken..])?)
    }

    /// As [`Direction::write`] for a run in several pieces.
    pub(crate) fn write_pieces(
        &mut self,
        pool: &mut Pool,
        sink: &mut Socket,
        pieces: &[IoSlice<'_>],
    ) -> Result<(), Broken> {
        let asked: usize = pieces.iter().map(|p| p.len()).sum();
        let mut taken = 0;
        if asked > 0 && self.output.is_empty() && sink.writable {
            let io = net::write_vectored(&sink.fd, pieces);
            sink.note_write(io, asked);
            match io {
                Io::Moved(n) => taken = n,
                Io::Blocked => {}
                Io::End | Io::Failed(_) => return Err(Broken),
            }
            self.note_taken(taken, asked);
        }
        if taken == asked {
            return Ok(());
        }
        for piece in pieces {
            let skip = taken.min(piece.len());
            taken -= skip;
            pool.push(&mut self.output, &piece[skip..])?;
        }
        Ok(())
    }

    fn note_taken(&mut self, taken: usize, asked: usize) {
        self.moved |= taken > 0;
        self.window = if taken < asked {
            u32::try_from(taken).unwrap_or(u32::MAX).max(WINDOW_MIN)
        } else {
            self.window.saturating_mul(2)
        };
    }

    /// Tells the sink that the source has ended, once everything is written. With the other
    /// direction finished as well the flow is about to close both sockets, which says it too.
    pub(crate) fn finish(&mut self, sink: &Socket, other_finished: bool) -> Result<(), Broken> {
        if self.source_ended && self.output.is_empty() && !self.finished {
            self.finished = true;
            if !other_finished {
                net::finish_writing(&sink.fd).map_err(|_| Broken)?;
            }
        }
        Ok(())
    }
}

/// A socket has failed, or a stream is broken beyond repair: both sides are reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl From<Exhausted> for Broken {
    /// A flow reads only while the pool has room for all it may read, so this is a flow that
    /// would need more than its share.
    fn from(_: Exhausted) -> Self {
        Self
    }
}
