import BackgroundTransfer
import Foundation

/// A podcast as a JSON Feed (version 1.1) with an attachment for each episode.
struct PodcastFeed: Decodable {
    private struct Item: Decodable {
        var id: String
        var attachments: [Attachment]?
    }

    private struct Attachment: Decodable {
        var url: URL
    }

    private enum CodingKeys: CodingKey {
        case title, items
    }

    /// The name of the podcast.
    let title: String
    /// The episodes, the latest first.
    let episodes: [Episode]

    /// Loads a feed with a session that ends with the process, since a person waits for the result.
    init(contentsOf url: URL) async throws {
        let (data, _) = try await URLSession.shared.data(from: url)
        self = try JSONDecoder().decode(PodcastFeed.self, from: data)
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        title = try container.decode(String.self, forKey: .title)
        episodes = try container.decode([Item].self, forKey: .items).compactMap { item in
            item.attachments?.first.map { Episode(id: item.id, url: $0.url) }
        }
    }
}

/// An episode of a podcast.
struct Episode: Sendable {
    /// The identifier within the feed.
    let id: String
    /// The sound file.
    let url: URL

    /// The name of the episode's file.
    var fileName: String { url.lastPathComponent }
}
