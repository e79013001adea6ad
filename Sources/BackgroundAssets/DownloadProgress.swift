import Foundation
import StageSystem

/// The progress of a download, whose counts any thread may read while the download changes them.
///
/// Foundation's class has no locks on Linux. `fractionCompleted` stays without one, because only members that
/// Foundation declares `open` can be overridden.
// `@unchecked`, like the superclass: the members below are accessed only while the lock is held.
final class DownloadProgress: Progress, @unchecked Sendable {
    override var totalUnitCount: Int64 {
        get { withProgressLock { super.totalUnitCount } }
        set { withProgressLock { super.totalUnitCount = newValue } }
    }

    override var completedUnitCount: Int64 {
        get { withProgressLock { super.completedUnitCount } }
        set { withProgressLock { super.completedUnitCount = newValue } }
    }

    override var isCancelled: Bool {
        get { withProgressLock { super.isCancelled } }
        set { withProgressLock { super.isCancelled = newValue } }
    }

    override var isIndeterminate: Bool { withProgressLock { super.isIndeterminate } }

    override var isFinished: Bool { withProgressLock { super.isFinished } }
}
