import StageModel
import SystemPackage

struct ZipDirectory {
    static func check(_ file: FileDescriptor, limits: UnpackLimits) throws(ArchiveError) {}
}
