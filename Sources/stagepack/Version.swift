import ProgramStart

/// The version of this program.
enum Version {
    static let text = STAGEPACK_VERSION

    /// The commit that `make` built the program from; `nil` if another tool built it, or if it was not built
    /// from a clone.
    static var commit: String? {
        guard let text = unsafe stage_commit() else { return nil }
        return unsafe String(cString: text)
    }
}
