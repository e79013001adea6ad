/// The condition under which a pack is downloaded without a request of the application.
///
/// The policies and event names are those of Apple's Managed Background Assets.
@nonexhaustive
public enum DownloadPolicy: Hashable, Sendable {
    /// Staged at the named events, before the application's first launch after them.
    case essential(Set<InstallationEvent>)
    /// Download starts at the named events and may end later.
    case prefetch(Set<InstallationEvent>)
    /// Downloaded when the application requests it.
    case onDemand
}

/// An installation event that a policy can name.
@nonexhaustive
public enum InstallationEvent: String, Hashable, Sendable, Codable, CaseIterable {
    /// The application is installed for the first time.
    case firstInstallation
    /// An installed application is updated.
    case subsequentUpdate
}

/// The occasion of a content request (Apple's `BAContentRequest`).
@nonexhaustive
public enum ContentRequest: String, Hashable, Sendable, Codable, CaseIterable {
    /// The application was installed.
    case install
    /// The application was updated.
    case update
    /// A periodic check at a time that the system chooses.
    case periodic
}
