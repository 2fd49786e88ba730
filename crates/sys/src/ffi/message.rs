//! Many datagrams in one call: `sendmmsg` and `recvmmsg`.
//!
//! The headers that the kernel reads hold pointers. They are filled in inside the call that uses
//! them, from borrows that last as long as the call, so no pointer in these buffers is ever used
//! later. The system calls are made directly: musl's `sendmmsg` is a loop around `sendmsg`. Every
//! header starts as zeros, which is what the kernel must find in musl's padding.

#![allow(
    trivial_numeric_casts,
    clippy::unnecessary_cast,
    reason = "C libraries differ in the types of a header's fields"
)]

use std::ffi::{c_long, c_uint, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Room for one socket address (`sockaddr_in6` is the longest).
pub(crate) const NAME_LEN: usize = 28;
/// Room for the control messages of one datagram received: packet information of both families
/// (32 and 40 bytes) and a segment size (24).
pub(crate) const CONTROL_LEN: usize = 128;

/// A socket address as the kernel reads and writes it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Name([u8; NAME_LEN]);

/// Control messages as the kernel reads and writes them.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Headers with room for a number of messages.
struct Headers {
    headers: Box<[libc::mmsghdr]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    iovecs: Box<[libc::iovec]>,
}

// SAFETY: the pointers inside are set and used within one call, by the thread that makes it; what
// is left of them afterwards is never read.
unsafe impl Send for Headers {}

impl Headers {
    fn new(messages: usize, iovecs: usize) -> Self {
        // SAFETY: all of its fields are integers and nullable pointers, for which zeros are valid.
        let header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        let iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            headers: vec![header; messages].into_boxed_slice(),
            names: vec![Name([0; NAME_LEN]); messages].into_boxed_slice(),
            controls: vec![Control([0; CONTROL_LEN]); messages].into_boxed_slice(),
            iovecs: vec![iovec; iovecs].into_boxed_slice(),
        }
    }
}

/// Where one message's parts lie, until the pointers to them are set.
#[derive(Clone, Copy)]
struct Extent {
    name_len: usize,
    control_len: usize,
    iovecs_start: usize,
    iovecs_len: usize,
}

/// Memory for the headers of messages to send.
pub(crate) struct SendHeaders {
    headers: Headers,
    extents: Vec<Extent>,
}

impl SendHeaders {
    /// Room for `messages` of together `pieces` pieces.
    pub(crate) fn new(messages: usize, pieces: usize) -> Self {
        Self { headers: Headers::new(messages, pieces), extents: Vec::with_capacity(messages) }
    }

    /// Starts a batch; an earlier one is forgotten.
    pub(crate) fn start(&mut self) -> SendBatch<'_> {
        self.extents.clear();
        SendBatch { memory: self, pieces: 0, data: PhantomData }
    }
}

/// Messages about to be sent by one call; borrows their bytes.
pub(crate) struct SendBatch<'a> {
    memory: &'a mut SendHeaders,
    pieces: usize,
    data: PhantomData<&'a [u8]>,
}

impl<'a> SendBatch<'a> {
    /// Messages in the batch.
    pub(crate) fn len(&self) -> usize {
        self.memory.extents.len()
    }

    /// Whether another message of `pieces` pieces has room.
    pub(crate) fn has_room(&self, pieces: usize) -> bool {
        let headers = &self.memory.headers;
        self.len() < headers.headers.len() && self.pieces + pieces <= headers.iovecs.len()
    }

    /// Adds a message to the socket address `name` (empty for a connected socket).
    ///
    /// # Panics
    /// When there is no room, see [`SendBatch::has_room`].
    pub(crate) fn push(
        &mut self,
        name: &[u8],
        control: &[u8],
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        let index = self.len();
        let headers = &mut self.memory.headers;
        headers.names[index].0[..name.len()].copy_from_slice(name);
        headers.controls[index].0[..control.len()].copy_from_slice(control);
        let start = self.pieces;
        for piece in pieces {
            // The kernel only reads what it sends.
            let base = piece.as_ptr().cast_mut().cast::<c_void>();
            headers.iovecs[self.pieces] = libc::iovec { iov_base: base, iov_len: piece.len() };
            self.pieces += 1;
        }
        self.memory.extents.push(Extent {
            name_len: name.len(),
            control_len: control.len(),
            iovecs_start: start,
            iovecs_len: self.pieces - start,
        });
    }

    /// Sends the messages and returns how many went, at least one; those behind did not.
    ///
    /// # Errors
    /// Why the first message did not go.
    pub(crate) fn send(self, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let SendHeaders { headers: Headers { headers, names, controls, iovecs }, extents } =
            self.memory;
        let iovecs = iovecs.as_mut_ptr();
        let used = extents.iter().zip(&mut **headers).zip(&mut **names).zip(&mut **controls);
        for (((extent, header), name), control) in used {
            let header = &mut header.msg_hdr;
            header.msg_name = match extent.name_len {
                0 => std::ptr::null_mut(),
                _ => name.0.as_mut_ptr().cast(),
            };
            header.msg_namelen = extent.name_len as _;
            header.msg_control = match extent.control_len {
                0 => std::ptr::null_mut(),
                _ => control.0.as_mut_ptr().cast(),
            };
            header.msg_controllen = extent.control_len as _;
            header.msg_iov = iovecs.wrapping_add(extent.iovecs_start);
            header.msg_iovlen = extent.iovecs_len as _;
        }
        let count = extents.len() as c_uint;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: `count` headers are initialised, and every pointer in them covers live memory:
        // names, controls and iovecs are borrowed here, the pieces by the batch's lifetime.
        let rc = unsafe {
            libc::syscall(libc::SYS_sendmmsg, fd.as_raw_fd(), headers.as_mut_ptr(), count, flags)
        };
        moved(rc)
    }
}

/// Memory for the headers of messages to receive, and what the last call put there.
pub(crate) struct ReceiveHeaders(Headers);

impl ReceiveHeaders {
    /// Room for `messages`.
    pub(crate) fn new(messages: usize) -> Self {
        Self(Headers::new(messages, messages))
    }

    /// Receives up to one datagram for each of `slots`, without waiting.
    ///
    /// # Errors
    /// There is none, or the socket reports an error.
    pub(crate) fn receive<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        slots: impl Iterator<Item = &'a mut [u8]>,
    ) -> Result<usize, Errno> {
        let Headers { headers, names, controls, iovecs } = &mut self.0;
        let mut count: c_uint = 0;
        let room = slots.zip(&mut **headers).zip(&mut **names).zip(&mut **controls);
        for ((((slot, header), name), control), iovec) in room.zip(&mut **iovecs) {
            *iovec = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            let header = &mut header.msg_hdr;
            header.msg_name = name.0.as_mut_ptr().cast();
            header.msg_namelen = NAME_LEN as _;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN as _;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            count += 1;
        }
        let no_timeout = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: `count` headers are initialised, every pointer in them covers memory that is
        // borrowed for writing during this function (`slots` yields disjoint exclusive borrows).
        let rc = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                no_timeout,
            )
        };
        moved(rc)
    }

    /// Bytes of message `index`.
    pub(crate) fn len(&self, index: usize) -> usize {
        self.0.headers[index].msg_len as usize
    }

    /// Whether message `index` was longer than its slot.
    pub(crate) fn is_truncated(&self, index: usize) -> bool {
        self.0.headers[index].msg_hdr.msg_flags & libc::MSG_TRUNC != 0
    }

    /// The socket address that message `index` came from.
    pub(crate) fn name(&self, index: usize) -> &[u8] {
        let len = self.0.headers[index].msg_hdr.msg_namelen as usize;
        &self.0.names[index].0[..len.min(NAME_LEN)]
    }

    /// The control messages of message `index`.
    pub(crate) fn control(&self, index: usize) -> &[u8] {
        let len = self.0.headers[index].msg_hdr.msg_controllen as usize;
        &self.0.controls[index].0[..len.min(CONTROL_LEN)]
    }
}

fn moved(rc: c_long) -> Result<usize, Errno> {
    usize::try_from(rc).map_err(|_| {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Errno::from_raw_os_error(code)
    })
}
