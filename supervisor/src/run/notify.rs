//! What systemd is told, where there is a systemd (`NOTIFY_SOCKET`): sd_notify(3).
//!
//! READY when every pool serves or is known not to; RELOADING with its time and READY again when all reloads are
//! over; STOPPING; a STATUS line; the watchdog's beat from the loop itself; more time where a boot or a stop may
//! take long; and, for its descriptor store, the listeners, so that even a crash of the supervisor refuses nobody, and
//! the hand-over queues, so that a restart closes no connection that waits in one.
//!
//! Always holds: without `NOTIFY_SOCKET` nothing of this is done, and nothing waits for it.

use super::{
    Shell,
    link::Queue,
    now,
    place::{Socket, queue_kept_as},
};
use crate::fleet::PoolState;
use sd_notify::NotifyState;
use std::{os::fd::AsFd, rc::Rc, time::Duration};

/// Time asked for beyond what is known to be needed.
const MARGIN: Duration = Duration::from_secs(10);

/// What systemd knows.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    present: bool,
    ready: bool,
    reloading: bool,
    status: String,
    beat: Option<Duration>,
    next_beat: Option<Duration>,
    /// Something changed that systemd may want to know.
    pub(super) dirty: bool,
}

impl Notify {
    pub(crate) fn from_environment() -> Notify {
        let present = std::env::var_os("NOTIFY_SOCKET").is_some();
        let ours = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid.parse() == Ok(std::process::id()));
        let every = std::env::var("WATCHDOG_USEC").ok().and_then(|usec| usec.parse().ok());
        let beat =
            every.filter(|usec| *usec > 0 && ours && present).map(|usec| Duration::from_micros(usec) / 2);
        Notify { present, beat, next_beat: beat.map(|beat| now() + beat), dirty: true, ..Notify::default() }
    }

    /// After a re-exec: it knows already that we are ready. Nobody knows when the former program's last beat was, so the
    /// next one is due: upgrades in quick succession would else go without any.
    pub(crate) fn resumed(mut self) -> Notify {
        self.ready = true;
        self.next_beat = self.beat.map(|_| now());
        self
    }

    /// The next beat.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.next_beat
    }

    fn tell(&self, state: &[NotifyState<'_>]) {
        if self.present
            && let Err(e) = sd_notify::notify(state)
        {
            tracing::debug!("tell systemd: {e}");
        }
    }

    /// A reload begins.
    pub(crate) fn reload(&mut self) {
        if !self.present || !self.ready {
            return;
        }
        self.reloading = true;
        self.dirty = true;
        if let Ok(time) = NotifyState::monotonic_usec_now() {
            self.tell(&[NotifyState::Reloading, time]);
        }
    }

    /// Everything ends, within this time.
    pub(crate) fn stop(&mut self, within: Duration) {
        self.ready = true; // it will not be said any more
        self.reloading = false;
        self.tell(&[NotifyState::Stopping]);
        self.extend(within);
    }

    /// Something takes so long.
    pub(crate) fn extend(&self, time: Duration) {
        let usec = u32::try_from((time + MARGIN).as_micros()).unwrap_or(u32::MAX);
        self.tell(&[NotifyState::ExtendTimeoutUsec(usec)]);
    }

    /// Gives listeners to the descriptor store.
    pub(crate) fn store(&self, sockets: &[Rc<Socket>]) {
        if !self.present {
            return;
        }
        // What a socket unit has is kept there.
        for socket in sockets.iter().filter(|socket| !socket.bound.lent) {
            let name = socket.kept_as();
            let state = [NotifyState::FdStore, NotifyState::FdName(&name)];
            if let Err(e) = sd_notify::notify_with_fds(&state, &[socket.bound.fd.as_fd()]) {
                tracing::debug!("give {} to systemd's store: {e}", socket.listen.address);
            }
        }
    }

    /// Gives a pool's hand-over queue to the descriptor store.
    pub(crate) fn store_queue(&self, pool: &str, queue: &Queue) {
        if !self.present {
            return;
        }
        for (name, end) in queue_kept_as(pool).iter().zip([&queue.receiving, &queue.sending]) {
            let state = [NotifyState::FdStore, NotifyState::FdName(name)];
            if let Err(e) = sd_notify::notify_with_fds(&state, &[end.as_fd()]) {
                tracing::debug!(pool, "give the hand-over queue to systemd's store: {e}");
            }
        }
    }

    /// Whether listeners may outlive this process in the descriptor store.
    pub(super) fn keeps_listeners(&self) -> bool {
        self.present
    }

    /// Takes a listener out of the descriptor store.
    pub(crate) fn forget(&self, name: &str) {
        self.tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)]);
    }
}

impl Shell {
    /// Tells systemd what changed.
    pub(super) fn tell_systemd(&mut self) {
        if !self.notify.present {
            return;
        }
        if self.notify.next_beat.is_some_and(|at| at <= now()) {
            self.notify.next_beat = self.notify.beat.map(|beat| now() + beat);
            self.notify.tell(&[NotifyState::Watchdog]);
        }
        if !std::mem::take(&mut self.notify.dirty) {
            return;
        }
        let mut counts = [0; 5];
        let mut reloading = false;
        for pool in self.places.keys().filter_map(|id| self.fleet.pool(*id)) {
            reloading |= pool.reloads();
            let at = match pool.state() {
                PoolState::Starting => 0,
                PoolState::Running => 1,
                PoolState::Degraded => 2,
                PoolState::Failed => 3,
                PoolState::Stopped => 4,
            };
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        let [starting, running, degraded, failed, stopped] = counts;
        let failed = failed + self.broken.len();
        let status = format!(
            "{running} pools running, {starting} starting, {degraded} degraded, {failed} failed, {stopped} stopped"
        );
        if status != self.notify.status {
            self.notify.tell(&[NotifyState::Status(&status)]);
            self.notify.status = status;
        }
        if !self.notify.ready && starting == 0 {
            self.notify.ready = true;
            self.notify.tell(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
        } else if self.notify.reloading && !reloading {
            self.notify.reloading = false;
            self.notify.tell(&[NotifyState::Ready]);
        }
    }
}
