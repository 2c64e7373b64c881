//! Where things are: the programs under test, a directory of a story's own, bodies with a known content.

use std::{
    fs, io,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A program of the workspace (`hostler`) as cargo built it, of the same profile as the tests.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    built(PathBuf::from(name))
}

/// An example of the worker library (`hello`, `probe`) as cargo built it.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    built(Path::new("examples").join(name))
}

fn built(name: PathBuf) -> PathBuf {
    // target/PROFILE/deps/TEST-HASH
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join(name);
    let build = "cargo build --workspace --bins --examples";
    assert!(path.exists(), "{} is not there: build it first with `{build}`, or run `./test`", path.display());
    path
}

/// Whether the tests run as root, which the programs and web servers then have to be told whom to become.
#[must_use]
pub fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A directory of one story, deleted at its end; every user may look into it, since workers drop root.
#[derive(Debug)]
pub struct Place {
    directory: tempfile::TempDir,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// A fresh one. Its path is short, since a Unix socket's address holds 107 bytes.
    #[must_use]
    pub fn new() -> Place {
        let directory = tempfile::Builder::new().prefix("hostler-").tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Place { directory }
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file, with the directories above it, and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Copies a program here, where any user may execute it.
    #[must_use]
    pub fn copy(&self, program: &Path) -> PathBuf {
        let path = self.path(program.file_name().unwrap().to_str().unwrap());
        fs::copy(program, &path).unwrap();
        path
    }
}

/// `len` bytes that differ from place to place and from seed to seed.
#[must_use]
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(noise.number().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Numbers that look random and are the same for the same seed (xorshift64*).
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// From a seed, any number.
    #[must_use]
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The next number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() >> 1).unwrap() % end
    }
}

/// CRC-32 of all that `from` gives.
///
/// # Errors
/// Those of `from`.
pub fn checksum(mut from: impl Read) -> io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    let mut part = vec![0; 64 * 1024];
    loop {
        match from.read(&mut part)? {
            0 => return Ok(sum.finalize()),
            n => sum.update(&part[..n]),
        }
    }
}
