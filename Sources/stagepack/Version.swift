import ProgramStart

/// The version of this program.
enum Version {
    static let text = STAGEPACK_VERSION

    /// The commit that `make` built it from; `nil` where another tool built it, or not from a clone.
    static var commit: String? {
        guard let text = unsafe stage_commit() else { return nil }
        return unsafe String(cString: text)
    }
}
