//! Files that may turn out to be pipes: `<(command)` of a shell, or a name by mistake.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A pipe into which nobody writes for so long is given up: a program that waits for it takes no
/// signal meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look whether something has come.
const NAP: Duration = Duration::from_millis(10);

/// Reads a file as usual, and a pipe without waiting for ever.
pub(crate) struct PatientFile {
    file: File,
    /// Until when a pipe has time to begin, or to go on.
    pipe: Option<Instant>,
    has_begun: bool,
}

impl PatientFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
        let is_pipe = file.metadata()?.file_type().is_fifo();
        let pipe = is_pipe.then(|| Instant::now() + PATIENCE);
        Ok(Self { file, pipe, has_begun: false })
    }

    /// Its length, where that is known before it is read.
    pub(crate) fn len(&self) -> io::Result<Option<u64>> {
        let about = self.file.metadata()?;
        Ok(about.is_file().then_some(about.len()))
    }
}

impl Read for PatientFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match (self.file.read(buf), self.pipe) {
                (Ok(0), Some(until)) if !self.has_begun && !buf.is_empty() => wait(until)?,
                (Err(e), Some(until)) if e.kind() == ErrorKind::WouldBlock => wait(until)?,
                (Ok(len), _) => {
                    self.has_begun = true;
                    self.pipe = self.pipe.map(|_| Instant::now() + PATIENCE);
                    return Ok(len);
                }
                (Err(e), _) => return Err(e),
            }
        }
    }
}

fn wait(until: Instant) -> io::Result<()> {
    if Instant::now() >= until {
        return Err(io::Error::new(ErrorKind::TimedOut, "it is a pipe into which nobody writes"));
    }
    std::thread::sleep(NAP);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("adit-{name}-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success(), "make a pipe");
        path
    }

    #[test]
    fn a_pipe_is_read_to_its_end_however_slowly_it_comes() {
        let path = pipe("slow");
        let writer = {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
                for part in ["one ", "two ", "three"] {
                    std::thread::sleep(3 * NAP);
                    io::Write::write_all(&mut pipe, part.as_bytes()).unwrap();
                }
            })
        };
        let mut text = String::new();
        PatientFile::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two three");
        writer.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_given_up() {
        let path = pipe("silent");
        let error = PatientFile::open(&path).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        std::fs::remove_file(path).unwrap();
    }
}
