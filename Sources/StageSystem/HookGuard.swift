import CLinux
import Glibc
import Synchronization

/// A supervising process between a package manager's hook and the StagePack run of that hook.
///
/// Has one thread and, once the run has begun, allocates neither memory nor descriptors. Waits for the run until its
/// deadline, and kills it with everything that it started if it does not end. Exits with status 0 unless the hook is strict
/// (`--strict`): the package manager never sees a run fail that lacks threads, memory or descriptors, without which runtimes trap
/// or retry forever.
package enum HookGuard {
    /// The messages of the guard, each with its newline, and the exit statuses of a strict hook.
    ///
    /// Static strings, because the guard allocates no memory.
    package struct Messages: Sendable {
        /// The run did not end by its deadline and was killed.
        package var late: StaticString
        /// A signal ended the run: the text before the signal number.
        package var diedOf: StaticString
        /// A signal ended the run: the text after the signal number.
        package var died: StaticString
        /// The system refused to start a second process.
        package var alone: StaticString
        /// A signal was forwarded and ended the run.
        package var interrupted: StaticString
        /// The exit status if the run did not end by its deadline.
        package var lateStatus: Int32
        /// The exit status if the run died.
        package var diedStatus: Int32
        /// The exit status if a signal was forwarded.
        package var interruptedStatus: Int32

        /// Creates the messages and statuses.
        package init(
            late: StaticString,
            diedOf: StaticString,
            died: StaticString,
            alone: StaticString,
            interrupted: StaticString,
            statuses: (late: Int32, died: Int32, interrupted: Int32)
        ) {
            self.late = late
            self.diedOf = diedOf
            self.died = died
            self.alone = alone
            self.interrupted = interrupted
            lateStatus = statuses.late
            diedStatus = statuses.died
            interruptedStatus = statuses.interrupted
        }
    }

    /// Returns whether this process runs a package manager's hook.
    ///
    /// In a hook, this forks: the call returns in the child, which does the work, while the parent becomes
    /// the guard and never returns. Call it first in a program, while it has one thread.
    package static func enter(_ messages: Messages) -> Bool {
        let hook = unsafe stage_hook_of(
            CommandLine.unsafeArgv,
            ProcessEnvironment.pointer(to: "DPKG_MAINTSCRIPT_NAME"),
            ProcessEnvironment.pointer(to: "STAGEPACK_HOOK_DEADLINE")
        )
        guard hook.is_hook != 0 else { return false }
        var guarded = unsafe stage_guard()
        let limit = Int64(hook.deadline * 1000) + Int64(STAGE_GUARD_PATIENCE)
        unsafe guarded.limit = limit
        unsafe guarded.shared_limit = stage_shared_number(limit)
        sharedLimit.store(
            unsafe UInt(bitPattern: guarded.shared_limit),
            ordering: .relaxed
        )
        unsafe guarded.is_strict = hook.is_strict
        unsafe guarded.late = messages.late.cString
        unsafe guarded.late_status = messages.lateStatus
        unsafe guarded.died_of = messages.diedOf.cString
        unsafe guarded.died = messages.died.cString
        unsafe guarded.died_status = messages.diedStatus
        unsafe guarded.alone = messages.alone.cString
        unsafe guarded.interrupted = messages.interrupted.cString
        unsafe guarded.interrupted_status = messages.interruptedStatus
        unsafe stage_enter_guarded(&guarded)
        return true
    }

    /// Tells the guard the deadline of this run, counted from its start.
    ///
    /// Without memory that both share, the guard keeps to the deadline that it knows.
    package static func setDeadline(_ deadline: Duration) {
        let number = unsafe UnsafeMutablePointer<Int64>(
            bitPattern: sharedLimit.load(ordering: .relaxed)
        )
        guard let number = unsafe number else { return }
        let (seconds, fraction) = deadline.components
        let milliseconds = seconds * 1000 + fraction / 1_000_000_000_000_000
        unsafe stage_set_shared_number(number, milliseconds + Int64(STAGE_GUARD_PATIENCE))
    }

    /// Address of the limit that this process shares with its guard; 0 if there is none.
    private static let sharedLimit = Atomic<UInt>(0)
}
