import FoundationEssentials
import StageContainer
import StageControl
import StageEngine
import StageModel
import StagingService

/// Audience of a text: people and programs need times in different formats.
enum Audience {
    /// People at this machine: local times, with the time that has passed.
    case people
    /// Programs: times in RFC 3339 format.
    case programs

    /// Returns a time, in seconds since 1970, in the format for this audience.
    func text(ofTime seconds: Int64) -> String {
        // Clamped, since a file system can store any number.
        let time = InternetTime(Date(timeIntervalSince1970: Double(seconds)))
        return self == .people ? time.text : time.description
    }
}

extension StagingReason {
    /// Returns the reason for an outcome, as a fragment; for a staged pack, its state before that.
    func text(for outcome: PackOutcome, audience: Audience) -> String {
        switch (outcome, self) {
        case (.staged, .missing): "it was missing"
        case (.staged, .outdated(let version)): "in place of version \(version)"
        case (.staged, .contentChanged): "in place of other content under this version"
        case (.staged, .damaged): "in place of what was damaged"
        case (.failed, .missing): "it is missing"
        case (.failed, .outdated(let version)): "it stays at version \(version)"
        case (.failed, .contentChanged): "other content stays staged under this version"
        case (.failed, .damaged): "the damaged files stay staged"
        default: text(audience)
        }
    }

    /// Returns the reason for a decision, as a fragment.
    private func text(_ audience: Audience) -> String {
        switch self {
        case .missing: "not staged yet"
        case .outdated(let version): "version \(version) is staged"
        case .contentChanged: "other content is staged under this version"
        case .damaged: "the staged content is damaged"
        case .upToDate: "staged and up to date"
        case .onDemand: "downloaded when the application asks for it"
        case .otherEvents(let events):
            "its policy names other events: "
                + (events.isEmpty ? "none" : events.map(\.rawValue).joined(separator: ", "))
        case .notEssential: "not essential"
        case .notSelected: "not asked for"
        case .declined: "the application's downloader extension did not ask for it"
        case .pinned(let version, let rolledBackFrom):
            "\(Planner.PinnedVersion(version: version, rolledBackFrom: rolledBackFrom))"
        case .otherVersion(let required, let installed):
            "for application version '\(required)', \(installed) is installed"
        case .newerElsewhere(let version): "version \(version) is staged in another container"
        case .offeredByOther(let application, let version):
            "version \(version) of '\(application)' is staged"
        case .noSpace: "does not fit"
        case .exceedsQuota: "does not fit into the quota"
        case .exceedsAllowance(let name): "exceeds '\(name)'"
        case .disallowedDomain: "its hosts are not in 'downloadDomainAllowList'"
        case .makesRoom(let reason, let lastUsed):
            "makes room: \(reason.text(lastUsed, audience: audience))"
        case .evicted(let reason, let lastUsed): reason.text(lastUsed, audience: audience)
        case .inUse: "staged, and in use since it was to make room"
        case .stagedByOther: "another process staged it meanwhile"
        case .held(let names):
            names.map { PendingReason.Kind(rawValue: $0)?.text ?? $0 }.joined(separator: "; ")
        case .removedByName: "by name"
        case .offeredNoMore: "no manifest offers it"
        }
    }
}
