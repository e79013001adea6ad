import Foundation
import StageExtension

/// A download: a ``BAURLDownload``, or the download of an ``AssetPack``.
///
/// Unlike Apple's class it is immutable: a later ``state`` is in another object, which is equal if an application has
/// scheduled the download. A host identifies downloads by ``identifier``, and passes new objects to an extension.
///
/// `@unchecked Sendable` because all stored properties of this class and its only subclass are constants of
/// Sendable types.
public class BADownload: Hashable, CustomStringConvertible, @unchecked Sendable {
    /// The state of a download.
    @nonexhaustive(warn)
    public enum State: Int, Sendable {
        /// The download failed.
        case failed = -1
        /// The download was created, and not scheduled yet.
        case created = 0
        /// The download is queued.
        case waiting = 1
        /// The download is in progress.
        case downloading = 2
        /// The download has succeeded.
        case finished = 3
    }

    /// The order among an application's downloads: higher priorities start first.
    public struct Priority: RawRepresentable, Hashable, Sendable {
        /// The numeric priority.
        public var rawValue: Int

        /// The lowest priority.
        public static let min = Priority(-1000)
        /// The default priority.
        public static let `default` = Priority(0)
        /// The highest priority.
        public static let max = Priority(1000)

        /// Creates a priority from its number.
        public init(_ rawValue: Int) { self.rawValue = rawValue }

        /// Creates a priority from its number.
        public init(rawValue: Int) { self.rawValue = rawValue }
    }

    /// The application's name of the download, unique within one answer.
    public let identifier: String
    /// The globally unique name of the download.
    public let uniqueIdentifier: String
    /// Indicates whether the first launch waits for the download.
    public let isEssential: Bool
    /// The order among the application's downloads.
    public let priority: Priority
    /// The state of the download when this object was created.
    public let state: State

    /// The download as sent to the host.
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

    /// Returns a download with the same identifier and file that the first launch does not wait for.
    ///
    /// It serves to schedule an essential download again after a failure: only downloads for an installation or update
    /// can be essential. The returned download has its own ``uniqueIdentifier``.
    public func removingEssential() -> Self {
        let copy = BADownload.made(of: wire.removingEssential(), state: .created)
        guard let copy = copy as? Self else {
            preconditionFailure("a download has the class that its kind calls for")
        }
        return copy
    }

    /// Creates a download of the class for its kind.
    static func made(of wire: ExtensionDownload, state: State) -> BADownload {
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

    /// Returns whether two objects represent the same download.
    public static func == (left: BADownload, right: BADownload) -> Bool {
        left.uniqueIdentifier == right.uniqueIdentifier
    }

    /// Hashes the unique identifier.
    public func hash(into hasher: inout Hasher) { hasher.combine(uniqueIdentifier) }

    /// The identifier, and whether the download is essential.
    public var description: String { "'\(identifier)'\(isEssential ? " (essential)" : "")" }
}

extension ExtensionDownload {
    /// Returns the same download, not essential.
    fileprivate func removingEssential() -> ExtensionDownload {
        switch self {
        case .pack(let id, _, let priority):
            return .pack(id, essential: false, priority: priority)
        case .url(var download):
            download.isEssential = false
            return .url(download)
        }
    }
}
