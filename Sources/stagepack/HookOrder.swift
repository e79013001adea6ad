import StageContainer
import StageModel
import StageSystem
import StagingService

/// The order in which a hook stages for applications, and their shares of its deadline.
///
/// One server that does not answer must not take the time of the applications that were just installed.
struct HookOrder {
    /// An application, or `nil` for the session that the options name, and its rank.
    struct Entry {
        var application: ApplicationID?
        var rank: Rank
    }

    /// The need of an application, in the order of precedence.
    enum Rank: Int, Comparable {
        /// No run has ended since the registration was installed.
        case new
        /// Essential packs are missing.
        case incomplete
        /// Every essential pack is staged; the hook updates them.
        case complete

        static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }

        /// The weight of the application's share of the deadline.
        fileprivate var weight: Int { self == .complete ? 1 : Self.fullWeight }

        fileprivate static let fullWeight = 10
    }

    /// The applications, those that need packs first.
    let entries: [Entry]

    /// Creates the order for entries of another one.
    init(_ entries: [Entry]) { self.entries = entries }

    init(_ applications: [ApplicationID?], of sessions: ApplicationSessions) {
        guard applications.count > 1 else {
            entries = applications.map { Entry(application: $0, rank: .new) }
            return
        }
        let ranked = applications.map {
            Entry(application: $0, rank: Self.rank(of: $0, in: sessions))
        }
        // The sort is stable: within a rank, the order is that of the names.
        entries = ranked.sorted { $0.rank < $1.rank }
    }

    /// Returns the time for the application at an index, of the time that is left for it and all later ones.
    ///
    /// A complete application gets a tenth at most, also if it is the only one left: the periodic run updates it,
    /// and no package waits for that.
    func share(of rest: Duration, at index: Int) -> Duration {
        let total = entries[index...].reduce(0) { $0 + $1.rank.weight }
        return rest * entries[index].rank.weight / max(total, Rank.fullWeight)
    }

    private static func rank(
        of application: ApplicationID?,
        in sessions: ApplicationSessions
    ) -> Rank {
        // A registration or container that cannot be read is reported when the application runs, and takes no time.
        guard let id = application, let target = (try? sessions.session(of: id))?.target,
            let path = target.knownContainer, let file = target.registrationPath,
            let reader = try? ContainerReader.open(path),
            let run = (try? reader.history(of: id))?.lastRun
        else { return .new }
        // The time of change: package managers restore the modification time of the build.
        if let status = FileStatus(following: file), status.changed >= run.endedAt { return .new }
        return target.hasEssentialPacks ? .complete : .incomplete
    }
}
