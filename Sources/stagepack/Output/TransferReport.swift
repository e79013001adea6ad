import StageEngine
import StageModel

/// The ways to transfer the content of an indexed pack, with the bytes of each, without the index unless it is restored from
/// the archive or the patch.
struct TransferReport: Codable, Equatable {
    /// The way with the fewest bytes; `nil` if only the index, which is not here yet, determines it.
    var way: TransferChoice.Way?
    /// The bytes of ranges of bundles and of a delta set; an upper bound if ``way`` is `nil`, or with ``precedesIndex``.
    var objects: ByteCount
    /// The bytes of the archive that are still to be transferred; `nil` without an archive.
    var archive: ByteCount?
    /// The bytes of the patch from the staged version that are still to be transferred; `nil` without one.
    var patch: ByteCount?
    /// The bytes of the delta set from the staged version; `nil` without one.
    var differences: ByteCount?
    /// `true` if objects are missing or damaged on all servers; `nil` otherwise.
    var lacksObjects: Bool?
    /// `true` if the patch is taken before the index, which its content completes; `nil` otherwise.
    var precedesIndex: Bool?

    init(_ choice: TransferChoice) {
        way = choice.dependsOnIndex ? nil : choice.way
        objects = choice.objects
        archive = choice.archive
        patch = choice.patch
        differences = choice.differences
        lacksObjects = choice.lacksObjects ? true : nil
        precedesIndex = choice.precedesIndex ? true : nil
    }

    /// The ways as a fragment for people, to follow a semicolon or the name of a pack.
    var text: String {
        switch way {
        case .archive where lacksObjects == true:
            return "by its archive (\(archive ?? .zero)), since objects are missing or damaged"
        case .archive:
            return "by its archive (\(archive ?? .zero)), since objects have \(objects)"
        case .patch where precedesIndex == true:
            return "by a patch (\(patch ?? .zero), with the index)"
        case .patch:
            return "by a patch (\(patch ?? .zero)), since objects have \(objects)"
        case .objects:
            let other = archive.map { ", since its archive has \($0)" } ?? ""
            return "by objects (\(objects))\(other)"
        case nil:
            let set = differences.map { " (differences have \($0))" } ?? ""
            let most = min(objects, archive ?? objects, patch ?? objects)
            let limit = most == objects ? "all objects" : most == patch ? "a patch" : "its archive"
            return "by what changed\(set), or by \(limit) (\(most)) where that is less"
        }
    }
}
