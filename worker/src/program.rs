//! Hostler's own worker program: drops privileges, enters the pool's sandbox, then serves what it is told or becomes the pool's program.
//!
//! Always holds: nobody else's code runs before [`crate::control::Order::Become`] is done.

use crate::{
    control::{Become, Order, Report},
    link::{Link, Received},
    relay::warden,
    sandbox, start,
};
use nix::{
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        stat::{Mode, umask},
    },
    unistd::{Gid, Uid, setgid, setgroups, setuid},
};
use std::{
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Command, ExitCode},
};

/// Exit code: privileges could not be dropped or the program not executed (EX_NOPERM).
const NO_PERMISSION: u8 = 77;

/// The program: descriptor 0 is the control socket.
#[must_use]
pub fn main() -> ExitCode {
    if warden::is_wanted() {
        return warden::main();
    }
    let fd = match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(fd) => fd,
        Err(e) => return fail(&format!("descriptor 0: {e}")),
    };
    let link = Link::new(fd);
    let become_ = match link.receive(true) {
        Ok(Received::Order(Order::Become(become_), _)) => become_,
        Ok(Received::Gone) => return ExitCode::SUCCESS,
        Ok(_) => return fail("an order other than Become first"),
        Err(why) => return fail(&format!("{why}: is descriptor 0 a supervisor's socket?")),
    };
    let fail = |why: &str| {
        link.report(&Report::BootFailed { message: why.to_owned() });
        fail(why)
    };
    if let Err(why) = drop_privileges(&become_) {
        return fail(&why);
    }
    match become_.exec.as_deref() {
        None => start::run_named(),
        Some([]) => fail("a command without a program"),
        Some([program, arguments @ ..]) => {
            let error = Command::new(program).args(arguments).exec();
            let hint = match become_.sandbox {
                Some(_) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    "; the pool's sandbox allows it where it lies beneath a path of sandbox.read"
                }
                _ => "",
            };
            fail(&format!("execute {program}: {error}{hint}"))
        }
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("hostler: {why}");
    ExitCode::from(NO_PERMISSION)
}

fn drop_privileges(become_: &Become) -> Result<(), String> {
    let say = |what: String| move |e: nix::Error| format!("{what}: {e}");
    if let Some(files) = become_.open_files {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(say("read RLIMIT_NOFILE".into()))?;
        // Above the hard limit only with a capability that the supervisor may not have.
        let set = setrlimit(Resource::RLIMIT_NOFILE, files, files.max(hard));
        set.or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, files, files.min(hard)))
            .map_err(say(format!("set limits.open_files to {files} (the hard limit is {hard})")))?;
    }
    if let Some(core) = become_.core {
        let (_, hard) = getrlimit(Resource::RLIMIT_CORE).map_err(say("read RLIMIT_CORE".into()))?;
        setrlimit(Resource::RLIMIT_CORE, core.min(hard), hard)
            .map_err(say(format!("set limits.core to {core}")))?;
    }
    if let Some(mask) = become_.umask {
        umask(Mode::from_bits_truncate(mask));
    }
    if let Some(user) = &become_.user {
        let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        setgroups(&groups).map_err(say("set supplementary groups".into()))?;
        setgid(Gid::from_raw(user.gid)).map_err(say(format!("become group {}", user.gid)))?;
        setuid(Uid::from_raw(user.uid)).map_err(say(format!("become user {}", user.uid)))?;
    }
    prctl::set_no_new_privs().map_err(say("set no_new_privs".into()))?;
    if let Some(directory) = &become_.directory {
        std::env::set_current_dir(directory).map_err(|e| format!("enter directory {directory}: {e}"))?;
    }
    become_.sandbox.as_ref().map_or(Ok(()), sandbox::enter)
}
