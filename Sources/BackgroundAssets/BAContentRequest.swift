import StageModel

/// The occasion of a content request.
@nonexhaustive(warn)
public enum BAContentRequest: Int, Hashable, Sendable {
    /// The application was installed.
    case install = 1
    /// The application was updated.
    case update = 2
    /// A periodic check at a time that the system chooses.
    case periodic = 3
    /// The user's languages have changed; never used, because packs have no languages here.
    case languageChange = 4

    init(_ request: ContentRequest) {
        self =
            switch request {
            case .install: .install
            case .update: .update
            case .periodic: .periodic
            }
    }
}
