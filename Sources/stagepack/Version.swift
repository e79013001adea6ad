import ProgramStart

/// The version of this program.
enum Version {
    static let text = STAGEPACK_VERSION
}
