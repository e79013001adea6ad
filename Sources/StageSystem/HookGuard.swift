import CLinux
import Glibc

/// A process between the hook of a package manager and the run of it.
///
/// It has one thread, asks for no memory and no descriptors, waits for the run and its time, kills what does not end
/// with everything that it started, and ends with status 0: whatever a run without threads, memory or descriptors
/// does (runtimes trap, or try for ever), the package manager sees nothing of it.
public enum HookGuard {
    /// The lines of the guard, each with its end, and the statuses of a strict hook.
    ///
    /// Static strings, because a guard does not depend on memory that it would have to ask for.
    public struct Words: Sendable {
        /// The run did not stop in time, and was killed.
        public var late: StaticString
        /// A signal ended the run: what is said in front of its number.
        public var diedOf: StaticString
        /// A signal ended the run: what is said behind its number.
        public var died: StaticString
        /// There could be no second process.
        public var alone: StaticString
        /// A signal was handed on and ended the run.
        public var interrupted: StaticString
        /// The status where the run did not stop in time.
        public var lateStatus: Int32
        /// The status where the run could not go on.
        public var diedStatus: Int32
        /// The status where a signal was handed on.
        public var interruptedStatus: Int32

        /// Creates the words.
        public init(
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

    /// Returns whether this process runs a hook.
    ///
    /// If so, it is the guarded one, and the guard does not return. To be called first in a program, while there is one thread: the run is a copy of the process.
    public static func enter(_ words: Words) -> Bool {
        let hook = unsafe stage_hook_of(
            CommandLine.unsafeArgv,
            ProcessEnvironment.pointer(to: "DPKG_MAINTSCRIPT_NAME"),
            ProcessEnvironment.pointer(to: "STAGEPACK_HOOK_DEADLINE")
        )
        guard hook.is_hook != 0 else { return false }
        var guarded = unsafe stage_guard()
        unsafe guarded.limit = Int64(hook.deadline * 1000) + Int64(STAGE_GUARD_PATIENCE)
        unsafe guarded.is_strict = hook.is_strict
        unsafe guarded.late = words.late.cString
        unsafe guarded.late_status = words.lateStatus
        unsafe guarded.died_of = words.diedOf.cString
        unsafe guarded.died = words.died.cString
        unsafe guarded.died_status = words.diedStatus
        unsafe guarded.alone = words.alone.cString
        unsafe guarded.interrupted = words.interrupted.cString
        unsafe guarded.interrupted_status = words.interruptedStatus
        unsafe stage_enter_guarded(&guarded)
        return true
    }
}
