import Foundation
import StageExtension

/// A download: a ``BAURLDownload``, or one of an ``AssetPack``.
///
/// Differs from Apple's class in being immutable: a later ``state`` is that of another object, which is
/// equal where it was scheduled by an application. A host names downloads by ``identifier``, and what it
/// hands to an extension are new objects.
///
/// Unchecked, since all properties are constants of types that are Sendable, here and in the only
/// subclass.
public class BADownload: Hashable, CustomStringConvertible, @unchecked Sendable {
    /// What became of a download so far.
    public enum State: Int, Sendable {
        /// It failed.
        case failed = -1
        /// It was made, and nobody was asked for it.
        case created = 0
        /// It waits for its turn.
        case waiting = 1
        /// It is under way.
        case downloading = 2
        /// It has ended well.
        case finished = 3
    }

    /// Orders the downloads of an application: higher comes first.
    public struct Priority: RawRepresentable, Hashable, Sendable {
        /// The number that orders.
        public var rawValue: Int

        /// The lowest priority.
        public static let min = Priority(-1000)
        /// What is neither urgent nor unimportant.
        public static let `default` = Priority(0)
        /// The highest priority.
        public static let max = Priority(1000)

        /// Creates a priority from its number.
        public init(_ rawValue: Int) { self.rawValue = rawValue }

        /// Creates a priority from its number.
        public init(rawValue: Int) { self.rawValue = rawValue }
    }

    /// What the application calls the download: once among those of one answer.
    public let identifier: String
    /// Names the download: no other one has it.
    public let uniqueIdentifier: String
    /// Whether the first launch waits for the download.
    public let isEssential: Bool
    /// Orders the downloads of the application.
    public let priority: Priority
    /// What had become of the download when this object was made.
    public let state: State

    /// The download as the host knows it.
    let wire: ExtensionDownload

    init(
        wire: ExtensionDownload,
        isEssential: Bool,
        priority: Priority,
        state: State,
        uniqueIdentifier: String = UUID().uuidString
    ) {
        identifier = wire.identifier
        self.uniqueIdentifier = uniqueIdentifier
        self.wire = wire
        self.isEssential = isEssential
        self.priority = priority
        self.state = state
    }

    /// Returns the same download, for which the first launch does not wait.
    ///
    /// To ask once more for an essential download that failed: outside of installation and update
    /// nothing is essential.
    public func removingEssential() -> Self {
        copy(isEssential: false)
    }

    /// Returns a download that is new and otherwise the same.
    private func copy(isEssential: Bool) -> Self {
        let copy = BADownload.made(of: wire.copy(isEssential: isEssential), .created)
        guard let copy = copy as? Self else {
            preconditionFailure("a download has the class that its kind calls for")
        }
        return copy
    }

    /// Makes a download of the class that its kind calls for.
    static func made(of wire: ExtensionDownload, _ state: State) -> BADownload {
        switch wire {
        case .pack(_, let essential, let priority):
            BADownload(
                wire: wire,
                isEssential: essential ?? false,
                priority: Priority(priority ?? 0),
                state: state
            )
        case .url(let download):
            BAURLDownload(wire: download, state: state)
        }
    }

    /// Whether two downloads are one.
    public static func == (left: BADownload, right: BADownload) -> Bool {
        left.uniqueIdentifier == right.uniqueIdentifier
    }

    /// Hashes the name of the download.
    public func hash(into hasher: inout Hasher) { hasher.combine(uniqueIdentifier) }

    /// The identifier, and whether the download is essential.
    public var description: String { "'\(identifier)'\(isEssential ? " (essential)" : "")" }
}

extension ExtensionDownload {
    /// The same download, essential or not.
    fileprivate func copy(isEssential: Bool) -> ExtensionDownload {
        switch self {
        case .pack(let id, _, let priority):
            return .pack(id, essential: isEssential, priority: priority)
        case .url(var download):
            download.isEssential = isEssential
            return .url(download)
        }
    }
}
