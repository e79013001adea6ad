import StageEngine
import StageModel

/// The ways to the content of an indexed pack, and the bytes that each transfers beside the index.
struct TransferReport: Codable, Equatable {
    /// The way of the fewest bytes; `nil` where the index has to be fetched to tell.
    var way: TransferChoice.Way?
    /// The bytes of ranges of bundles and of a delta set; where the way is not known, the most that they can be.
    var objects: ByteCount
    /// The bytes of the archive that are not here; `nil` without one.
    var archive: ByteCount?
    /// The bytes of the delta set from the staged version; `nil` without one.
    var differences: ByteCount?

    init(_ choice: TransferChoice) {
        way = choice.dependsOnIndex ? nil : choice.way
        objects = choice.objects
        archive = choice.archive
        differences = choice.differences
    }

    /// The ways for a person: what follows a semicolon, or the name of a pack.
    var text: String {
        switch way {
        case .archive:
            return "by its archive (\(archive ?? .zero)), since objects have \(objects)"
        case .objects:
            let other = archive.map { ", since its archive has \($0)" } ?? ""
            return "by objects (\(objects))\(other)"
        case nil:
            let set = differences.map { " (differences have \($0))" } ?? ""
            let most = min(objects, archive ?? objects)
            let limit = archive.map { $0 < objects } == true ? "its archive" : "all objects"
            return "by what changed\(set), or by \(limit) (\(most)) where that is less"
        }
    }
}
