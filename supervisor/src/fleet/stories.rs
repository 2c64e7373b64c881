//! Short stories of one pool, told with invented times.

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const P: PoolId = PoolId(1);

fn plan(revision: u64, model: Model) -> Plan {
    Plan {
        revision,
        model,
        boot_timeout: Duration::from_secs(30),
        retire_timeout: Duration::from_secs(60),
        stop_timeout: Duration::from_secs(10),
        memory: None,
    }
}

/// A fleet, the time, and who was started.
struct Story {
    fleet: Fleet,
    now: Time,
    said: Vec<Action>,
}

impl Story {
    fn begin(model: Model) -> Story {
        let mut story = Story { fleet: Fleet::new(1), now: Duration::from_secs(1000), said: Vec::new() };
        story.happens(Event::Configured { pool: P, plan: plan(1, model) });
        story
    }

    fn happens(&mut self, event: Event) -> &mut Story {
        self.said = self.fleet.step(self.now, event);
        self
    }

    /// Lets time pass as a shell would: each deadline is met on time.
    fn passes(&mut self, time: Duration) -> &mut Story {
        let until = self.now + time;
        let mut said = Vec::new();
        while let Some(due) = self.fleet.next_deadline().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.happens(Event::Tick);
            said.append(&mut self.said);
        }
        self.now = until;
        self.said = said;
        self
    }

    fn started(&self) -> Vec<WorkerId> {
        self.said
            .iter()
            .filter_map(|a| match a {
                Action::Spawn { worker, .. } => Some(*worker),
                _ => None,
            })
            .collect()
    }

    fn forced(&self) -> Vec<(WorkerId, Force)> {
        self.said
            .iter()
            .filter_map(|a| match a {
                Action::Force { worker, force, .. } => Some((*worker, *force)),
                _ => None,
            })
            .collect()
    }

    fn report(&mut self, worker: WorkerId, report: Report) -> &mut Story {
        self.happens(Event::Reported { worker, report })
    }

    fn exits(&mut self, worker: WorkerId, clean: bool, requests: u64) -> &mut Story {
        let exit = Exit { clean, oom: false, requests, said: "exit code 1".into() };
        self.happens(Event::Exited { worker, exit })
    }

    fn boots_all(&mut self) -> Vec<WorkerId> {
        let all = self.started();
        for worker in &all {
            self.report(*worker, Report::Ready);
        }
        all
    }

    fn state(&self) -> PoolState {
        self.fleet.pool(P).unwrap().state()
    }
}

#[test]
fn a_static_pool_starts_its_count_and_then_rests() {
    let mut story = Story::begin(Model::Static { count: 3 });
    assert_eq!(story.boots_all().len(), 3);
    assert_eq!(story.state(), PoolState::Running);
    assert_eq!(story.fleet.next_deadline(), None);
}

#[test]
fn a_dead_worker_is_replaced_at_once() {
    let mut story = Story::begin(Model::Static { count: 2 });
    let all = story.boots_all();
    story.exits(all[0], false, 7);
    assert_eq!(story.started().len(), 1);
    assert_eq!(story.fleet.pool(P).unwrap().totals().crashes, 1);
}

#[test]
fn fresh_workers_that_one_blow_kills_are_all_replaced_at_once_and_the_pool_has_not_failed() {
    let mut story = Story::begin(Model::Static { count: 3 });
    let all = story.boots_all();
    story.now += MS(500);
    let mut started = 0;
    for worker in all {
        story.exits(worker, false, 0);
        started += story.started().len();
        assert_ne!(story.state(), PoolState::Failed);
        story.now += MS(1);
    }
    assert_eq!(started, 3);
    // Their successors are another matter.
    let next: Vec<WorkerId> = story.fleet.pool(P).unwrap().workers().map(|(id, _)| id).collect();
    for worker in next {
        story.report(worker, Report::Ready);
        story.exits(worker, false, 0);
    }
    assert_eq!(story.state(), PoolState::Failed);
}

#[test]
fn a_pool_whose_workers_are_shot_also_while_they_boot_lets_clients_wait_for_a_moment() {
    let mut story = Story::begin(Model::Static { count: 1 });
    let first = story.boots_all()[0];
    story.exits(first, false, 100);
    for _ in 0..3 {
        let next = story.fleet.pool(P).unwrap().workers().map(|(id, _)| id).last();
        if let Some(next) = next {
            story.exits(next, false, 0);
        }
        assert_ne!(story.state(), PoolState::Failed);
        story.passes(MS(200));
    }
    story.passes(MS(2000));
    for _ in 0..2 {
        let next = story.fleet.pool(P).unwrap().workers().find(|(_, w)| w.kind() == Kind::App);
        if let Some(next) = next.map(|(id, _)| id) {
            story.exits(next, false, 0);
        }
        story.passes(Duration::from_secs(1));
    }
    assert_eq!(story.state(), PoolState::Failed);
}

#[test]
fn a_pool_that_cannot_boot_is_failed_stands_in_and_tries_on_ever_less_often() {
    let mut story = Story::begin(Model::Static { count: 1 });
    let mut tries = 0;
    for _ in 0..200 {
        for worker in story.started() {
            let kind = story.fleet.pool(P).unwrap().worker(worker).unwrap().kind();
            if kind == Kind::App {
                tries += 1;
                story.exits(worker, false, 0);
                assert!(story.started().len() <= 1);
                for next in story.started() {
                    // what follows at once is handled here, the rest below
                    if story.fleet.pool(P).unwrap().worker(next).unwrap().kind() == Kind::StandIn {
                        story.report(next, Report::Ready);
                    } else {
                        tries += 1;
                        story.exits(next, false, 0);
                        let stand_in = story.started();
                        for s in stand_in {
                            story.report(s, Report::Ready);
                        }
                    }
                }
            }
        }
        story.passes(Duration::from_secs(10));
    }
    assert_eq!(story.state(), PoolState::Failed);
    assert!((50..200).contains(&tries), "{tries}");
    assert!(story.fleet.pool(P).unwrap().last_error().unwrap().contains("exit code 1"));
}

#[test]
fn a_reload_boots_the_new_generation_first_and_loses_no_serving_worker() {
    let mut story = Story::begin(Model::Static { count: 4 });
    story.boots_all();
    story.happens(Event::Configured { pool: P, plan: plan(2, Model::Static { count: 4 }) });
    let trial = story.started();
    assert_eq!(trial.len(), 1);
    assert!(story.forced().is_empty());
    let mut booting = trial;
    let mut retired = 0;
    while let Some(worker) = booting.pop() {
        story.report(worker, Report::Ready);
        retired += story.forced().iter().filter(|(_, force)| *force == Force::Retire).count();
        booting.extend(story.started());
    }
    assert_eq!(retired, 4);
    assert!(story.said.iter().any(|a| matches!(a, Action::Reloaded { fault: None, generation: 2, .. })));
}

#[test]
fn a_reload_that_cannot_boot_changes_nothing() {
    let mut story = Story::begin(Model::Static { count: 2 });
    story.boots_all();
    story.happens(Event::Configured { pool: P, plan: plan(2, Model::Static { count: 2 }) });
    let trial = story.started()[0];
    story.report(trial, Report::BootFailed { message: "no module named shop".into() });
    story.exits(trial, false, 0);
    assert!(story.forced().is_empty() && story.started().is_empty());
    let fault = story.said.iter().find_map(|a| match a {
        Action::Reloaded { fault, .. } => fault.clone(),
        _ => None,
    });
    assert_eq!(fault.as_deref(), Some("a worker did not boot: no module named shop"));
    assert_eq!(story.state(), PoolState::Running);
    assert_eq!(story.fleet.pool(P).unwrap().generation(), 1);
}

#[test]
fn ten_reloads_in_a_second_become_two() {
    let mut story = Story::begin(Model::Static { count: 1 });
    story.boots_all();
    let mut trial = Vec::new();
    for revision in 2..12 {
        story.happens(Event::Configured { pool: P, plan: plan(revision, Model::Static { count: 1 }) });
        trial.extend(story.started());
        story.passes(MS(100));
    }
    assert_eq!(trial.len(), 1);
    story.report(trial[0], Report::Ready);
    let second = story.started();
    assert_eq!(second.len(), 1);
    story.report(second[0], Report::Ready);
    assert_eq!(story.fleet.pool(P).unwrap().revision(), 11);
    assert!(!story.fleet.pool(P).unwrap().reloads());
}

#[test]
fn a_worn_worker_serves_until_its_replacement_is_ready() {
    let mut story = Story::begin(Model::Static { count: 1 });
    let old = story.boots_all()[0];
    story.report(old, Report::Worn { why: hostler_worker::control::Wear::Memory });
    let new = story.started()[0];
    assert!(story.forced().is_empty());
    story.report(new, Report::Ready);
    assert_eq!(story.forced(), [(old, Force::Retire)]);
    story.exits(old, true, 3);
    assert!(story.started().is_empty());
}

#[test]
fn a_worker_that_does_not_come_back_from_its_request_is_ended_and_one_that_does_is_not() {
    for back in [true, false] {
        let mut story = Story::begin(Model::Static { count: 1 });
        let worker = story.boots_all()[0];
        story.report(worker, Report::Active);
        story.report(worker, Report::TimedOut { request: "GET /".into(), ms: 60_000 });
        assert!(story.said.contains(&Action::Sample { pool: P }));
        let mut reading = Reading { worker, busy: true, requests: 5, connections: 1, memory: 0 };
        story.happens(Event::Sampled { pool: P, readings: vec![reading] });
        story.passes(pool::OVERDUE_GRACE);
        assert!(story.said.contains(&Action::Sample { pool: P }));
        reading.requests += u64::from(back);
        story.happens(Event::Sampled { pool: P, readings: vec![reading] });
        assert_eq!(story.forced().is_empty(), back);
        assert!(story.started().is_empty()); // it may take its memory with it first
        if !back {
            story.exits(worker, false, 5);
            assert_eq!(story.started().len(), 1);
            assert_eq!(story.fleet.pool(P).unwrap().totals().killed_stuck, 1);
        }
    }
}

#[test]
fn a_machine_that_slept_kills_nobody() {
    let mut story = Story::begin(Model::Static { count: 2 });
    let all = story.started();
    story.now += Duration::from_secs(8 * 3600);
    story.happens(Event::Tick);
    assert!(story.forced().is_empty());
    story.passes(Duration::from_secs(29));
    assert!(story.forced().is_empty());
    for worker in all {
        story.report(worker, Report::Ready);
    }
    assert_eq!(story.state(), PoolState::Running);
}

#[test]
fn a_boot_that_never_ends_is_killed_and_counted_as_a_failure() {
    let mut story = Story::begin(Model::Static { count: 1 });
    let worker = story.started()[0];
    story.passes(Duration::from_secs(30));
    assert_eq!(story.forced(), [(worker, Force::Kill)]);
    story.exits(worker, false, 0);
    assert_eq!(story.state(), PoolState::Failed);
    assert!(story.fleet.pool(P).unwrap().last_error().unwrap().contains("not ready in time"));
}

#[test]
fn an_ondemand_pool_has_nobody_at_rest_and_wakes_on_a_connection() {
    let idle_timeout = Duration::from_secs(5);
    let mut story = Story::begin(Model::Ondemand { max: 4, idle_timeout });
    assert!(story.started().is_empty());
    assert!(story.said.contains(&Action::Watch { pool: P }));
    assert_eq!(story.fleet.next_deadline(), None);
    story.happens(Event::Connecting { pool: P });
    let worker = story.boots_all()[0];
    story.passes(idle_timeout);
    // It holds a connection: it stays. Then it does not: it goes.
    for (connections, leaves) in [(1, false), (0, true)] {
        assert!(story.said.contains(&Action::Sample { pool: P }));
        let reading = Reading { worker, busy: false, requests: 1, connections, memory: 0 };
        story.happens(Event::Sampled { pool: P, readings: vec![reading] });
        assert_eq!(!story.forced().is_empty(), leaves);
        if !leaves {
            story.passes(idle_timeout);
        }
    }
    assert!(story.said.contains(&Action::Watch { pool: P }));
    story.exits(worker, true, 1);
    assert_eq!(story.fleet.next_deadline(), None);
}

#[test]
fn a_dynamic_pool_grows_under_pressure_within_bounds_and_shrinks_at_rest() {
    let idle_timeout = Duration::from_secs(5);
    let mut story = Story::begin(Model::Dynamic { min: 1, max: 9, spare: 1, idle_timeout });
    let mut all = story.boots_all();
    for _ in 0..40 {
        story.report(all[0], Report::Active);
        story.report(all[0], Report::Pressure);
        all.extend(story.boots_all());
        story.passes(MS(20));
    }
    assert_eq!(all.len(), 9);
    story.report(all[0], Report::Rest);
    story.passes(Duration::from_secs(60));
    assert_eq!(story.forced().len(), 8);
    assert_eq!(story.fleet.next_deadline().map(|d| d > story.now), Some(true)); // their time to retire
}

#[test]
fn a_stopped_pool_is_stood_in_for_and_starts_again() {
    let mut story = Story::begin(Model::Static { count: 2 });
    let all = story.boots_all();
    story.happens(Event::StopAsked { pool: P });
    assert_eq!(story.forced().len(), 2);
    let stand_in = story.started()[0];
    story.report(stand_in, Report::Ready);
    for worker in all {
        story.exits(worker, true, 1);
    }
    assert_eq!(story.state(), PoolState::Stopped);
    assert_eq!(story.fleet.next_deadline(), None);
    story.happens(Event::StartAsked { pool: P });
    assert_eq!(story.started().len(), 2);
    assert!(story.forced().is_empty());
    let first = story.started()[0];
    story.report(first, Report::Ready);
    assert_eq!(story.forced(), [(stand_in, Force::Retire)]);
}

#[test]
fn a_graceful_stop_rises_to_term_and_kill_and_ends() {
    let mut story = Story::begin(Model::Static { count: 1 });
    let worker = story.boots_all()[0];
    story.happens(Event::StopAll(Stop::Graceful(Duration::from_secs(30))));
    assert_eq!(story.forced(), [(worker, Force::Retire)]);
    story.passes(Duration::from_secs(60));
    assert_eq!(story.forced()[..2], [(worker, Force::Terminate), (worker, Force::Kill)]);
    story.exits(worker, false, 1);
    assert!(story.said.contains(&Action::Forget { pool: P }));
    assert!(story.said.contains(&Action::Finished));
}

#[test]
fn shot_workers_are_replaced_fast_for_as_long_as_it_goes_on() {
    let mut story = Story::begin(Model::Static { count: 4 });
    let mut all = story.boots_all();
    for _ in 0..100 {
        let shot = all.remove(0);
        story.exits(shot, false, 10);
        all.extend(story.boots_all());
        story.passes(MS(100));
        all.extend(story.boots_all());
        assert!(all.len() >= 3, "{}", all.len());
    }
}

#[test]
fn a_few_pools_reload_at_a_time() {
    let mut fleet = Fleet::new(1);
    let now = Duration::from_secs(10);
    for id in 0..20 {
        let plan = plan(1, Model::Static { count: 1 });
        for action in fleet.step(now, Event::Configured { pool: PoolId(id), plan }) {
            if let Action::Spawn { worker, .. } = action {
                fleet.step(now, Event::Reported { worker, report: Report::Ready });
            }
        }
    }
    let mut trials = 0;
    for id in 0..20 {
        let plan = plan(2, Model::Static { count: 1 });
        let actions = fleet.step(now, Event::Configured { pool: PoolId(id), plan });
        trials += actions.iter().filter(|a| matches!(a, Action::Spawn { .. })).count();
    }
    assert_eq!(trials, RELOADS);
    let later = fleet.step(now + SLOT, Event::Tick);
    let more = later.iter().filter(|a| matches!(a, Action::Spawn { .. })).count();
    assert_eq!(more, RELOADS); // four that hang do not hold up the others for ever
}
